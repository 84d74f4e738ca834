# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Server - a PostgreSQL server with zklock, for tests

=head1 SYNOPSIS

  my $a = Zklock::Server->new('a', zookeeper => $zk, conf => [ "zklock.session_timeout = '4s'" ]);
  my $s = $a->session;
  is($s->query("SELECT zk_lock('/t/lock')"), 't', 'A gets the lock');
  Zklock::Server->assert_clean($zk, [ $a ], '/t/lock');

Everything started is stopped at the end, also if the test dies; if it fails, the ends of all
logs are printed.

=head1 CREATING

C<Zklock::Server-E<gt>new($name, %options)> makes a database cluster with encoding UTF8 and locale C, starts it,
creates the extension in database postgres and waits until C<zk_session> says
'connected'. Options:

  zookeeper        a Zklock::ZooKeeper, or a connect string; sets zklock.servers
  chroot           appended to the connect string of a Zklock::ZooKeeper
  conf             a list of lines for postgresql.conf; what zklock.session_timeout has in
                   seconds is scaled, as Zklock::Util has it
  faults           a build with faults, and which are on at first: 'orphan,slow-writes' or ''
  stage            root of another uninstalled build than that of ZKLOCK_STAGE
  environment      { NAME => 'value' } for the server
  max_connections  default 100
  preload          0: without shared_preload_libraries
  extension        0: no CREATE EXTENSION
  connect          0: do not wait for 'connected'
  start            0: do not even start; call $server->launch later
  allows_streaming 1: may be the primary of standbys

C<Zklock::Server-E<gt>standby($name, primary =E<gt> $server, %options)> makes a hot standby of it,
C<Zklock::Server-E<gt>copy($name, of =E<gt> $server, %options)> a server of a file-level copy of
another's data directory, as it is at one moment.

ZKLOCK_PRELOAD names libraries to load into the servers first, as sanitizers need it;
STAGE in it stands for ZKLOCK_STAGE. test/perl/run-tap describes the other variables.

=head1 METHODS

From PostgreSQL::Test::Cluster, which C<node> returns: name, stop, start, restart,
reload, kill9, promote, append_conf, logfile, data_dir, safe_psql, psql, connstr, ... Besides:

  session(%opt)        a Zklock::Session; options name, dbname, user
  end_sessions         disconnects all of them
  value($sql)          one statement in the server's own monitoring session; text as
                       psql -At prints it, croaks on error
  set_conf(%settings)  ALTER SYSTEM SET and reload
  write_dialect($dialect, @sessions)
                       in which dialect locks' nodes are named, once these sessions know
  set_faults($list)    of a server created with "faults": from now on these; the worker knows
  wait_value($sql, $expected)
  terminate_backend($pid)   ends it and returns when it is gone; true if it was there
  log_mark, log_since($mark), wait_log($regex, $mark), assert_log($mark, $regex, $name),
  assert_rare($mark, $regex, $name)
  postmaster_pid
  begin_stop($mode)    pg_ctl stop without waiting; then wait_stopped
  start_again          start after kill9, when the last process is gone

And those of Zklock::Shown, which tell what zklock shows.

=cut

package Zklock::Server;

use v5.36;

use parent 'Zklock::Shown';

use Carp;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Scalar::Util qw(blessed weaken);
use Test::More ();
use Zklock::Faults;
use Zklock::Process;
use Zklock::Session;
use Zklock::Util qw(wait_until scaled tail children_of freeze thaw on_failure);

# The rest of PostgreSQL::Test::Cluster as it is.
foreach my $method (
	qw(name host port connstr data_dir logfile safe_psql psql reload promote append_conf
	wait_for_catchup backup backup_dir))
{
	no strict 'refs';
	*$method = sub { my $self = shift; return $self->{node}->$method(@_); };
}

sub node { return $_[0]{node}; }

# Creating a cluster takes a second of computing, copying one does not. Since PostgreSQL 16
# PostgreSQL::Test::Cluster copies INITDB_TEMPLATE itself.
sub _init($node, %opt)
{
	my $template = $ENV{INITDB_TEMPLATE};
	my $original = \&PostgreSQL::Test::Utils::system_or_bail;
	$opt{extra} = [qw(--no-locale -E UTF8)] unless $template && -d $template;
	no warnings 'redefine';
	local *PostgreSQL::Test::Utils::system_or_bail = sub {
		# initdb -D directory -A trust -N
		return $original->('cp', '-a', '--', $template, $_[2]) if "@_[0, 1]" eq 'initdb -D' && !$opt{extra};
		return $original->(@_);
	};
	$node->init(%opt);
	return;
}

sub _quote($text) { $text =~ s/'/''/g; return "'$text'"; }

sub stage_conf($stage)
{
	return () unless $stage;
	state @installed = map { s/\n//r } map { `pg_config --$_` } qw(pkglibdir sharedir version);
	my ($libdir, $sharedir, $version) = @installed;
	# Debian's setting up to PostgreSQL 17, PostgreSQL's own since 18.
	return (
		'dynamic_library_path = ' . _quote("$stage$libdir:\$libdir"),
		$version =~ /PostgreSQL (\d+)/ && $1 >= 18
		? 'extension_control_path = ' . _quote("$stage$sharedir:\$system")
		: 'extension_destdir = ' . _quote($stage));
}

sub _base_conf($self, %opt)
{
	my @conf = (
		"# zklock's tests",
		'restart_after_crash = on',
		'max_connections = ' . ($opt{max_connections} || 100),
		'shared_buffers = 8MB',
		'jit = off',
		"log_line_prefix = '%m [%p] %b %q%u@%d '",
		stage_conf($opt{stage} // (defined $opt{faults} ? $ENV{ZKLOCK_FAULT_STAGE} : $ENV{ZKLOCK_STAGE})));
	push @conf, "shared_preload_libraries = 'zklock'" if $opt{preload} // 1;
	my $faults = join ',', grep { defined && length } $ENV{ZKLOCK_FAULTS}, $opt{faults};
	if ($faults)
	{
		Zklock::Faults->check($faults);
		push @conf, "zklock.faults = '$faults'";
	}
	my $zk = $opt{zookeeper};
	push @conf, 'zklock.tick_time = ' . (blessed $zk && $zk->can('tick_time') ? $zk->tick_time : 500);
	push @conf, 'zklock.servers = ' . _quote(blessed $zk ? $zk->connect_string($opt{chroot}) : $zk) if defined $zk;
	return join("\n", @conf, map { s/^(zklock\.session_timeout = ')(\d+)(?=s')/$1 . scaled($2)/er } @{ $opt{conf} || [] });
}

my @nodes;

sub _new($class, $name, %opt)
{
	croak 'no build with faults: ZKLOCK_FAULT_STAGE is not set' if defined $opt{faults} && !$ENV{ZKLOCK_FAULT_STAGE};
	my $self = bless { node => PostgreSQL::Test::Cluster->new($name), opt => \%opt }, $class;
	push @nodes, $self->{node};
	weaken(my $weak = $self);
	on_failure("server $name", sub { return $weak ? $weak->failure_report : '(gone)'; });
	return $self;
}

sub _configure($self, %opt)
{
	$self->append_conf('postgresql.conf', $self->_base_conf(%opt));
	$self->launch if $opt{start} // 1;
	return $self;
}

sub new($class, $name, %opt)
{
	my $self = $class->_new($name, %opt);
	_init($self->node, allows_streaming => $opt{allows_streaming});
	return $self->_configure(%opt);
}

my $backups = 0;

sub standby($class, $name, %opt)
{
	my $primary = delete $opt{primary};
	my $self    = $class->_new($name, extension => 0, %opt);
	my $backup  = 'backup' . ++$backups;
	$primary->backup($backup);
	$self->node->init_from_backup($primary->node, $backup, has_streaming => 1);
	return $self->_configure(%opt);
}

# All processes stand still meanwhile: this is what a snapshot of the file system has.
sub copy($class, $name, %opt)
{
	my $original = delete $opt{of};
	my $self     = $class->_new($name, extension => 0, %opt);
	my $data     = $self->data_dir;
	my @frozen = map { ($_, children_of($_)) } $original->node->{_pid} // ();
	freeze(@frozen) if @frozen;
	my $copied = system('cp', '-a', '--', $original->data_dir, $data) == 0;
	thaw(reverse @frozen);
	croak "cannot copy to $data" unless $copied;
	unlink "$data/postmaster.pid";
	$self->append_conf('postgresql.conf', 'port = ' . $self->port);
	return $self->_configure(%opt);
}

# Start, create the extension, wait for ZooKeeper.
sub launch($self)
{
	my $opt     = $self->{opt};
	my $preload = $opt->{preload} // 1;
	$self->start;
	croak $self->name . ' has a build without faults'
	  if ($ENV{ZKLOCK_FAULTS} || defined $opt->{faults}) && $preload
	  && $self->log_since(0) !~ /this zklock was built for tests/;
	$self->value('CREATE EXTENSION IF NOT EXISTS zklock') if $opt->{extension} // 1;
	$self->wait_session if $opt->{zookeeper} && $preload && ($opt->{connect} // 1);
	return $self;
}

# Sessions of the harness must not be in the way of what stops or starts the server.
sub _drop_monitor($self) { delete @{$self}{qw(monitor barrier)}; return; }

foreach my $method (qw(start stop restart kill9))
{
	no strict 'refs';
	*$method = sub {
		my $self = shift;
		$self->_drop_monitor;
		# A sanitizer's library must be there before all others, in the server alone.
		local @ENV{ keys %{ $self->{opt}{environment} || {} } } = values %{ $self->{opt}{environment} || {} };
		local $ENV{LD_PRELOAD} = ($ENV{ZKLOCK_PRELOAD} || '') =~ s/STAGE/$ENV{ZKLOCK_STAGE}/r;
		return $self->{node}->$method(@_);
	};
}

sub postmaster_pid($self) { return slurp_file($self->data_dir . '/postmaster.pid') =~ s/\n.*//sr; }

sub begin_stop($self, $mode)
{
	$self->_drop_monitor;
	PostgreSQL::Test::Utils::system_or_bail('pg_ctl', '-s', '-W', '-D', $self->data_dir, '-m', $mode, 'stop');
	return;
}

sub wait_stopped($self)
{
	my $file = $self->data_dir . '/postmaster.pid';
	wait_until { !-e $file } sub { $self->name . ' to stop; end of its log:' . "\n" . tail($self->logfile, 20) };
	$self->node->_update_pid(0);
	return;
}

sub start_again($self)
{
	# A failed start finds the id of the process that was killed.
	wait_until { $self->start(fail_ok => 1) || do { undef $self->node->{_pid}; 0 } }
	$self->name . ' to start';
	return;
}

# ---- sessions ---------------------------------------------------------------

sub session($self, %opt)
{
	my $number = ++$self->{sessions};
	my $session = Zklock::Session->new(
		name   => $opt{name} || $self->name . ".$number",
		dsn    => $self->connstr($opt{dbname} || 'postgres') =~ s/'//gr
		  . ($opt{options} ? " options='$opt{options}'" : ''),
		user   => $opt{user},
		server => $self);
	push @{ $self->{open} }, $session;
	weaken($self->{open}[-1]);
	return $session;
}

sub end_sessions($self)
{
	$self->_drop_monitor;
	$_->disconnect foreach grep { defined } splice @{ $self->{open} // [] };
	return;
}

# Statements of the harness itself. A server that crashed meanwhile gets a new session.
sub _monitor($self, $sql)
{
	foreach my $last (0, 1)
	{
		$self->{monitor} ||= $self->session(
			name    => $self->name . '.monitor',
			options => '-clog_statement=none');
		my $result = $self->{monitor}->try($sql);
		return $result if $result->{ok};
		croak $self->name . ": $sql: $result->{error}" if $result->{severity} eq 'ERROR' || $last;
		$self->_drop_monitor;
	}
}

sub value($self, $sql) { return $self->_monitor($sql)->{text}; }

# The rows of a query as hashes.
sub _hashes($self, $sql)
{
	my $result = $self->_monitor($sql);
	return map { my %row; @row{ @{ $result->{columns} } } = @$_; \%row } @{ $result->{rows} };
}

sub set_conf($self, %settings)
{
	$self->value("ALTER SYSTEM SET $_ = " . _quote($settings{$_})) foreach sort keys %settings;
	$self->value('SELECT pg_reload_conf()');
	return;
}

sub write_dialect($self, $dialect, @sessions)
{
	$self->set_conf('zklock.path_dialects' => "/*=$dialect");
	foreach my $session (@sessions)
	{
		wait_until { $session->query('SHOW zklock.path_dialects') eq "/*=$dialect" } "a session to write names of $dialect";
	}
	return;
}

sub set_faults($self, $list)
{
	Zklock::Faults->check($list);
	my ($mark, $worker) = ($self->log_mark, $self->worker_pid || 0);
	$self->set_conf('zklock.faults' => $list);
	# One that starts meanwhile has them from the beginning.
	wait_until { $self->log_since($mark) =~ /\[$worker\].* faults are now "$list"/ || ($self->worker_pid || 0) != $worker }
	$self->name . " to have the faults '$list'";
	return;
}

sub wait_value($self, $sql, $expected, $timeout = undef)
{
	my $last = '';
	wait_until { ($last = $self->value($sql)) eq $expected; }
	sub { $self->name . ": '$sql' to be '$expected' (it is '$last')\n" . $self->describe_locks }, $timeout;
	return;
}

sub terminate_backend($self, $pid)
{
	my $done = $self->value("SELECT pg_terminate_backend($pid)") eq 't';
	wait_until { !kill 0, $pid } $self->name . ": backend $pid to be gone";
	return $done;
}

# ---- the server log ---------------------------------------------------------

sub log_mark($self) { return -s $self->logfile || 0; }

sub log_since($self, $mark) { return slurp_file($self->logfile, $mark || 0); }

sub wait_log($self, $regex, $mark = undef, $timeout = undef)
{
	return wait_until { $self->log_since($mark) =~ $regex }
	sub { $self->name . ": log to match $regex; its end:\n" . tail($self->logfile, 20) }, $timeout;
}

# A test: what is logged since the mark matches, now or in a moment.
sub assert_log($self, $mark, $regex, $name)
{
	my $logged = eval { $self->wait_log($regex, $mark, 20); 1 };
	Test::More::ok($logged, $name) or Test::More::diag($@);
	return $logged;
}

# A test: of the lines since the mark that match there is one a second at most.
sub assert_rare($self, $mark, $regex, $name)
{
	my @lines = grep { /$regex/ } split(/\n/, $self->log_since($mark));
	my @at = map { my ($h, $m, $s) = /(\d\d):(\d\d):([\d.]+)/; ($h * 60 + $m) * 60 + $s } @lines;
	# Clocks are read a moment before the line is written, and midnight may come.
	my @early = grep { my $pause = $at[$_] - $at[ $_ - 1 ]; $pause >= 0 && $pause < 0.9 } 1 .. $#at;
	return Test::More::ok(@lines > 0 && !@early, $name) || Test::More::diag(@lines . ' lines: ', join("\n", @lines[ 0, @early ]));
}

sub failure_report($self)
{
	my $log = $self->logfile;
	my $usual = qr/\ (?:checkpointer|startup|walsender|walreceiver)\ .*LOG:
		|\ (?:walsender)\ .*STATEMENT:|not\ yet\ accepting\ connections|Consistent\ recovery
		|LOG:\ \ (?:listening\ on|starting\ PostgreSQL|database\ system\ is)/x;
	my $locks = $self->node->{_pid} ? $self->describe_locks : "(not running)\n";
	return $locks . "end of $log, without what is usual:\n" . tail($log, 50, $usual);
}

# A test may die while a server is stopping. PostgreSQL::Test::Cluster would give up at the
# first that it cannot stop, and sessions with the others would never end.
END
{
	my $status = $?;
	Zklock::Util::end_of_test($status);
	foreach my $node (@nodes)
	{
		my $file = $node->data_dir . '/postmaster.pid';
		PostgreSQL::Test::Utils::system_log('pg_ctl', '-s', '-D', $node->data_dir, '-m', 'immediate', 'stop')
		  if -e $file;
		undef $node->{_pid};
	}
	$? = $status;
}

1;
