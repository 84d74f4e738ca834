# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::SqlClient - what the clients of database servers have in common

=head1 SYNOPSIS

  my $client = Nemesis::SqlClient->new;         # its configuration is in $ARGV[0]
  until ($client->last_lap)
  {
      my %attempt = $client->begin_attempt;     # connects; id, client, kind, server, clock
      $attempt{value} = $client->run('SELECT ...', @values);
      $client->end_attempt(\%attempt, 'SELECT zk_unlock_all()');
  }
  $client->disconnect;

The configuration is JSON, as C<sql_client> of Nemesis::Run gives it: name, server, dsn, register
(its dsn), history (a file), seed, and what the target adds.

=cut

package Nemesis::SqlClient;

use v5.36;

use DBI;
use Exporter 'import';
use JSON::PP;
use Nemesis::History qw(now clock_difference);

our @EXPORT_OK = qw(nap between one_of);

sub nap($seconds) { select(undef, undef, undef, $seconds); return; }
sub between($low, $high) { return $low + rand($high - $low); }
sub one_of { return $_[ rand @_ ]; }

sub new($class)
{
	my $config = JSON::PP->new->utf8->decode($ARGV[0]);
	my $self = bless {
		config   => $config,
		history  => Nemesis::History->new($config->{history}),
		attempts => 0,
		last_lap => 0,
		error    => {} }, $class;
	$SIG{USR1} = sub { $self->{last_lap} = 1; };
	srand($config->{seed});
	return $self;
}

sub config($self, $name) { return $self->{config}{$name}; }

# Each thing is to be tried once more, until it succeeds; then the client ends.
sub last_lap { return $_[0]{last_lap}; }

# Why the last statement failed: { sqlstate, error, fatal }; empty if it did not
sub error { return $_[0]{error}; }

sub _connect($self)
{
	until ($self->{dbh})
	{
		$self->{dbh} = DBI->connect("dbi:Pg:$self->{config}{dsn}", undef, '',
			{ AutoCommit => 1, RaiseError => 0, PrintError => 0, PrintWarn => 0, pg_server_prepare => 0 });
		nap(0.2) unless $self->{dbh};
	}
	return;
}

# One statement. Returns its first value, or true if it has none; undef on an error.
sub run($self, $sql, @values)
{
	my $dbh = $self->{dbh};
	my $result;
	if ($sql =~ /^SELECT/)
	{
		my $row = $dbh->selectrow_arrayref($sql, undef, @values);
		$result = $row->[0] if $row;
	}
	else
	{
		$result = $dbh->do($sql, undef, @values);
	}
	$self->{error} = {};
	return $result unless $dbh->err;
	my %error = (sqlstate => $dbh->state, error => $dbh->errstr);
	# Without the server's last words the library makes up a state.
	$error{sqlstate} = '08006' unless $error{error} =~ /^(?:ERROR|FATAL|PANIC):/;
	$error{fatal} = $error{error} !~ /^ERROR:/;
	$self->{error} = \%error;
	return undef;
}

# BEGIN and COMMIT, which know that a ROLLBACK is due if something fails in between
sub begin($self) { return $self->{in_transaction} = $self->run('BEGIN'); }
sub commit($self) { $self->{in_transaction} = 0; return $self->run('COMMIT'); }

sub begin_attempt($self)
{
	my $config = $self->{config};
	$self->_connect;
	$self->{in_transaction} = 0;
	return (
		id => "$config->{name}." . ++$self->{attempts}, client => $config->{name}, kind => 'sql',
		server => $config->{server}, clock => clock_difference);
}

# Writes the attempt into the history, with the time and the last error. Whatever is left of it
# must go, by the statements given; if that fails, so must the connection.
sub end_attempt($self, $attempt, @clean)
{
	my $error = $self->{error};
	$attempt->{told} = now;
	@$attempt{qw(sqlstate error)} = @$error{qw(sqlstate error)} if %$error;
	unshift @clean, 'ROLLBACK' if $self->{in_transaction};
	$self->disconnect if $error->{fatal} || grep { !defined $self->run($_) } @clean;
	$self->{history}->add($attempt);
	return;
}

sub disconnect($self)
{
	$self->{dbh}->disconnect if $self->{dbh};
	undef $self->{dbh};
	return;
}

1;
