# Copyright (c) 2026, zklock contributors

=head1 NAME

Nemesis::Register - what the locks are to protect: numbers in a database without faults

=head1 SYNOPSIS

  Nemesis::Register->create($server, @paths);      # once

  my $register = Nemesis::Register->new($dsn);     # each client
  my $seen = $register->read($path, $token);
  ... a pause ...
  $register->write($path, $token, $attempt, $seen);

  my @writes = Nemesis::Register->writes($server); # for the checker

For each path there are two numbers. Whoever holds the lock reads them, pauses, and writes
what it read plus one. One of them takes any write. The other is fenced: it remembers the
highest token it has seen, and takes neither reads nor writes with an older one.

C<writes> returns the accepted writes in their order, as hashes: path, fenced, attempt,
token, seen, value.

=cut

package Nemesis::Register;

use v5.36;

use DBI;

sub create($class, $server, @paths)
{
	$server->safe_psql('postgres', q{
		CREATE TABLE register (
			path text, fenced boolean, value bigint NOT NULL DEFAULT 0, token bigint NOT NULL DEFAULT 0,
			PRIMARY KEY (path, fenced));
		CREATE TABLE writes (
			seq bigserial PRIMARY KEY, path text, fenced boolean, attempt text, token bigint,
			seen bigint, value bigint);

		CREATE FUNCTION read_fenced(path_ text, token_ bigint) RETURNS bigint LANGUAGE sql AS $$
			UPDATE register SET token = token_
			WHERE path = path_ AND fenced AND token <= token_ RETURNING value $$;

		-- The row lock puts the log into the order of the writes.
		CREATE FUNCTION write(path_ text, fenced_ boolean, token_ bigint, attempt_ text, seen_ bigint)
		RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN
			UPDATE register SET value = seen_ + 1, token = token_
			WHERE path = path_ AND fenced = fenced_ AND (NOT fenced_ OR token <= token_);
			IF NOT FOUND THEN
				RETURN false;
			END IF;
			INSERT INTO writes (path, fenced, attempt, token, seen, value)
			VALUES (path_, fenced_, attempt_, token_, seen_, seen_ + 1);
			RETURN true;
		END $$;
		} . join('', map { "INSERT INTO register VALUES ('$_', true), ('$_', false);" } @paths));
	return;
}

sub new($class, $dsn)
{
	my $dbh = DBI->connect("dbi:Pg:$dsn", undef, '', { RaiseError => 1, PrintError => 0 });
	return bless { dbh => $dbh }, $class;
}

# The numbers seen: [unfenced, fenced], the latter undef if the token is too old.
sub read($self, $path, $token)
{
	return $self->{dbh}->selectrow_arrayref(
		'SELECT (SELECT value FROM register WHERE path = ? AND NOT fenced), read_fenced(?, ?)',
		undef, $path, $path, $token);
}

sub write($self, $path, $token, $attempt, $seen)
{
	$self->{dbh}->selectrow_array('SELECT write(?, false, ?, ?, ?)', undef, $path, $token, $attempt, $seen->[0]);
	$self->{dbh}->selectrow_array('SELECT write(?, true, ?, ?, ?)', undef, $path, $token, $attempt, $seen->[1])
	  if defined $seen->[1];
	return;
}

sub writes($class, $server)
{
	my @columns = qw(path fenced attempt token seen value);
	my $text = $server->value(
		'SELECT path, fenced::int, attempt, token, seen, value FROM writes ORDER BY seq');
	return map { my %write; @write{@columns} = split /\|/; \%write } split /\n/, $text;
}

1;
