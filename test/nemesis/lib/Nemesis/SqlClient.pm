# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::SqlClient - a session of a database server, as a client of the fault run

=head1 SYNOPSIS

  my %attempt = $client->begin_attempt;
  $attempt{value} = $client->run('SELECT ...', @values);
  $client->end_attempt(\%attempt, 'SELECT zk_unlock_all()');

Its configuration is that of Nemesis::Client with server and dsn, as C<sql_client> of Nemesis::Run
gives them.

=cut

package Nemesis::SqlClient;

use v5.36;

use parent 'Nemesis::Client';

use DBI;
use Zklock::Util qw(nap);

sub kind { return 'sql'; }

# Why the last statement failed: { sqlstate, error, fatal }; empty if it did not
sub error($self) { return $self->{error} // {}; }

sub _connect($self)
{
	until ($self->{dbh})
	{
		$self->{dbh} = DBI->connect('dbi:Pg:' . $self->config('dsn'), undef, '',
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

# BEGIN and COMMIT, which know that a ROLLBACK is due if something fails in between; the latter says what
# became of the transaction
sub begin($self) { return $self->{in_transaction} = $self->run('BEGIN'); }

sub commit($self)
{
	my $done = $self->run('COMMIT');
	# A cancel that comes before COMMIT has begun leaves the transaction there.
	$self->{in_transaction} = !$done;
	return 'committed' if $done;
	return $self->error->{sqlstate} eq '40001' ? 'refused' : $self->error->{fatal} ? 'unknown' : 'aborted';
}

sub begin_attempt($self)
{
	$self->_connect;
	$self->{in_transaction} = 0;
	return ($self->SUPER::begin_attempt, server => $self->config('server'));
}

# With the last error. Whatever is left of the attempt must go, by the statements given; if that fails,
# so must the connection.
sub end_attempt($self, $attempt, @clean)
{
	my $error = $self->error;
	@$attempt{qw(sqlstate error)} = @$error{qw(sqlstate error)} if %$error;
	$self->SUPER::end_attempt($attempt);
	unshift @clean, 'ROLLBACK' if $self->{in_transaction};
	$self->disconnect if $error->{fatal} || grep { !defined $self->run($_) } @clean;
	return;
}

sub disconnect($self)
{
	$self->{dbh}->disconnect if $self->{dbh};
	undef $self->{dbh};
	return;
}

1;
