# Copyright (c) 2026, zklock contributors
#
# The checker of the fault run's queues, on histories made by hand: good ones pass, and each
# kind of violation is found.

use Zklock::Test;
use FindBin;
use lib "$FindBin::Bin/../nemesis/lib";
use Nemesis::Target::Queues;

my $number = 0;

sub attempt
{
	my ($action, $outcome, $what, %more) = @_;
	$number++;
	return { id => "c.$number", server => 'a', action => $action, outcome => $outcome, what => $what, path => '/p', applied => 1, %more };
}
sub offer { return attempt('offer', @_); }
sub take  { return attempt('take',  @_); }

sub kinds_are
{
	my ($expected, $name, @attempts) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @found = @{ Nemesis::Target::Queues->judge(@attempts)->{violations} };
	is(join(', ', map { $_->{kind} } @found), $expected, $name) or diag explain \@found;
	return;
}

kinds_are('', 'offered and taken', offer(offered => 'x'), take(committed => 'x'));
kinds_are('', 'given back once', offer(offered => 'x'), take(aborted => 'x'), take(committed => 'x'));
kinds_are('', 'an offer that failed is taken or not', offer(failed => 'x'), offer(failed => 'y'), take(committed => 'x'));
kinds_are('', 'taken again, and not applied again', offer(offered => 'x'), take(committed => 'x'), take(committed => 'x', applied => 0));
kinds_are('', 'taken again on another server', offer(offered => 'x'), take(committed => 'x'), take(committed => 'x', server => 'b'));
kinds_are('', 'there was none', attempt('take', 'none', undef));
kinds_are('element lost', 'nobody has taken it', offer(offered => 'x'));
kinds_are('element lost', 'who has taken it did not commit', offer(offered => 'x'), take(aborted => 'x'));
kinds_are('applied twice', 'on one server', offer(offered => 'x'), take(committed => 'x'), take(committed => 'x'));
kinds_are('element from nowhere', 'nobody has offered it', take(committed => 'x'));
kinds_are('unexpected error', 'an internal error', offer(failed => 'x', sqlstate => 'XX000', error => 'internal error'));

done_testing;
