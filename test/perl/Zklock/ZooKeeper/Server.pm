# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::ZooKeeper::Server - one of the servers of a Zklock::ZooKeeper, which makes it

=cut

package Zklock::ZooKeeper::Server;

use v5.36;

use Carp;
use IO::Select;
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);
use Zklock::Jars;
use Zklock::Process;
use Zklock::Util qw(wait_until scaled tail on_failure);

# Our own main class, compiled once per test.
my $classes;

sub new($class, $name, $id, $port, $peers, %opt)
{
	my $dir = $opt{place} ? "$opt{place}/$name" : PostgreSQL::Test::Utils::tempdir($name);
	mkdir $dir;
	my $self = bless {
		heap => 128, java => [], forceSync => 'no', container_check => 3_600_000, request_log => 0, io_threads => 0,
		%opt,
		name => $name,
		id   => $id,
		port => $port,
		dir  => $dir,
		log  => Zklock::Process::log_of($name),
	}, $class;

	my %conf = (
		tickTime                => $opt{tickTime},
		initLimit               => scaled(20),
		syncLimit               => scaled($opt{syncLimit} || 10),
		minSessionTimeout       => $opt{minSessionTimeout} || 2 * $opt{tickTime},
		maxSessionTimeout       => $opt{maxSessionTimeout} || scaled(60000),
		dataDir                 => "$dir/data",
		clientPort              => $port,
		clientPortAddress       => '127.0.0.1',
		maxClientCnxns          => 0,
		'admin.enableServer'    => 'false',
		'4lw.commands.whitelist' => '*',
		%{ $opt{conf} || {} });
	if ($opt{tls})
	{
		$self->{tls_port} = PostgreSQL::Test::Cluster::get_free_port();
		%conf = (%conf, secureClientPort => $self->{tls_port}, secureClientPortAddress => '127.0.0.1', $opt{tls}->server_conf);
		push @{ $self->{java} }, '-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory';
	}
	mkdir "$dir/data" or croak "cannot create $dir/data: $!";
	append_to_file("$dir/data/myid", "$id\n") if $peers;
	append_to_file("$dir/zoo.cfg", join('', map { "$_=$conf{$_}\n" } sort keys %conf) . $peers);

	# The log is appended to by each start.
	unlink $self->{log};
	on_failure("end of $self->{log}", sub { $self->log_tail(40) });
	return $self;
}

foreach my $value (qw(name id port dir tls_port))
{
	no strict 'refs';
	*$value = sub { return $_[0]{$value}; };
}

sub log_file { return $_[0]{log}; }
sub pid      { return $_[0]{process} && $_[0]{process}->pid; }
sub connect_string { return "127.0.0.1:$_[0]{port}"; }

# The log without requests, our own probing, start-up banner and stack traces.
sub log_tail($self, $lines)
{
	return tail($self->{log}, $lines, qr/FinalRequestProcessor|Processing \w{4} command|\[main\] INFO|^\s+at |^\s*$/);
}

sub start($self, %opt)
{
	croak "$self->{name} runs already" if $self->running;
	my $simple    = '-Dorg.slf4j.simpleLogger';
	my $classpath = classpath(@server_jars);
	my $main      = 'org.apache.zookeeper.server.quorum.QuorumPeerMain';
	my $archive   = 'server';
	if ($self->{stale_nodes})
	{
		$main = 'StaleNode';
		$archive = '';
		$classes ||= compile(PostgreSQL::Test::Utils::tempdir('server_classes'), $classpath, $main);
		$classpath = "$classes:$classpath";
	}
	$self->{start_mark} = $self->mark;
	$self->{start_time} = time;
	# One that was stopped as it began a log does not start with it: without a whole header, nothing is in it.
	unlink grep { -s $_ < 16 } glob "$self->{dir}/data/version-2/log.*";
	$self->{process} = Zklock::Process->new(
		name => $self->{name},
		log  => $self->{log},
		dir  => $self->{dir},
		argv => [
			(defined $self->{file_size} ? ('sh', '-c', "ulimit -f @{[2 * $self->{file_size}]}; exec \"\$@\"", 'sh') : ()),
			java_command($archive, "-Xmx$self->{heap}m"),
			"$simple.showDateTime=true", "$simple.dateTimeFormat=HH:mm:ss.SSS",
			"$simple.showShortLogName=true",
			(   map { "$simple.log.org.apache.zookeeper.$_=warn" }
				  qw(audit.ZKAuditProvider server.AuthenticationHelper server.BlueThrottle
				  server.ResponseCache server.ServerCnxnFactory server.ServerMetrics
				  server.command.FourLetterCommands server.persistence.SnapStream
				  server.persistence.FileSnap server.util.RequestPathMetricsCollector
				  server.watch.WatchManagerFactory server.RequestThrottler server.ZKDatabase
				  jmx.ManagedUtil server.DatadirCleanupManager
				  server.quorum.QuorumPeerConfig server.quorum.CommitProcessor)),
			("$simple.log.org.apache.zookeeper.server.FinalRequestProcessor=debug") x !!$self->{request_log},
			"-Dzookeeper.forceSync=$self->{forceSync}",
			"-Dznode.container.checkIntervalMs=$self->{container_check}",
			# The transaction log is 64 MB in advance otherwise.
			'-Dzookeeper.preAllocSize=512',
			(defined $self->{io_threads} ? "-Dzookeeper.nio.numWorkerThreads=$self->{io_threads}" : ()),
			@{ $self->{java} }, '-cp', $classpath, $main, './zoo.cfg' ]);
	return unless $opt{wait} // 1;
	$self->wait_ready;
	$self->{set}->_shell_back if $self->{set};
	return;
}

sub options($self, %opt) { @{$self}{ keys %opt } = values %opt; return; }

foreach my $method (qw(running pause resume stop kill9))
{
	no strict 'refs';
	*$method = sub ($self) { return $self->{process} && $self->{process}->$method; };
}

# Removes its data. It must not run. With epochs it remembers how far its ensemble was, so that transactions go on
# from there.
sub wipe($self, %keep)
{
	croak "$self->{name} runs" if $self->running;
	my $data = "$self->{dir}/data/version-2";
	unlink grep { !/Epoch$/ } glob "$data/*";
	PostgreSQL::Test::Utils::system_or_bail('rm', '-rf', '--', $data) unless $keep{epochs};
	return;
}

sub begin_stop($self) { $self->{process}->signal('TERM') if $self->{process}; return; }
sub restart($self) { $self->stop; $self->start; return; }

sub wait_ready($self)
{
	wait_until {
		croak "$self->{name} ended: " . $self->{process}->status_text . "\n" . $self->log_tail(30)
		  unless $self->running;
		# A command sent while the server starts may stay without an answer, and puts
		# an exception into its log: so wait for the last line of a start first.
		($self->started || time > $self->{start_time} + 5) && $self->mode(0.5) ne '';
	} sub { "$self->{name} to serve clients:\n" . $self->log_tail(30) };
	return;
}

# Does the log say that the start is complete?
sub started($self)
{
	my $complete = qr/ContainerManager - Using|Peer state changed: \w+ - broadcast/;
	return -e $self->{log} && slurp_file($self->{log}, $self->{start_mark}) =~ $complete;
}

# 'standalone', 'leader', 'follower', or '' when it does not serve.
sub mode($self, $timeout = 2)
{
	return $self->running && $self->four_letter('srvr', $timeout) =~ /^Mode: (\w+)/m ? $1 : '';
}

# One of ZooKeeper's four-letter commands: ruok srvr wchs wchc wchp dump mntr cons.
# Empty answer if it cannot be reached.
sub four_letter($self, $command, $timeout = 10)
{
	my $end = time + $timeout;
	my $socket = IO::Socket::INET->new(
		PeerAddr => '127.0.0.1',
		PeerPort => $self->{port},
		Timeout  => $timeout) or return '';
	syswrite($socket, $command);
	my $answer = '';
	my $there  = IO::Select->new($socket);
	while (time < $end && $there->can_read($end - time))
	{
		last unless sysread($socket, $answer, 65536, length $answer);
	}
	return $answer;
}

# On data and on children; wchs and wchp know of the former only.
sub watch_count($self)
{
	my $text = $self->four_letter('mntr');
	return $1 if $text =~ /^zk_watch_count\t(\d+)/m;
	croak "$self->{name} does not tell the number of watches: '$text'";
}

sub mark($self) { return -s $self->{log} || 0; }

sub request_list($self, $mark, %opt)
{
	croak 'this ZooKeeper server logs no requests' unless $self->{request_log};
	open(my $fh, '<', $self->{log}) or croak "$self->{log}: $!";
	seek($fh, $mark || 0, 0);
	my @list;
	while (<$fh>)
	{
		next unless /Processing request:: sessionid:(\S+) type:(\w+) .* reqpath:(.*)$/;
		next if $2 eq 'ping' || $2 eq 'multi';
		next if $opt{session} && hex($1) != hex($opt{session});
		push @list, { type => $2, path => $3 };
	}
	return @list;
}

sub requests($self, @arg)
{
	my %count;
	$count{ $_->{type} }++ foreach $self->request_list(@arg);
	return \%count;
}

1;
