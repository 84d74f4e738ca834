# Copyright (c) 2026, zklock contributors
#
# The checker of elections in the fault run, on histories made by hand: good ones pass, and
# each kind of violation is found.

use Zklock::Test;
use FindBin;
use lib "$FindBin::Bin/../nemesis/lib";
use Nemesis::Target::Elections;

my $number = 0;

# A true answer, and what was written on its strength
sub led
{
	my ($server, $term, $asked, $granted, %more) = @_;
	return { id => 'c.' . ++$number, kind => 'sql', server => $server, path => '/e', asked => $asked, granted => $granted,
		until => $granted, told => $granted + 0.1, token => $term << 12, outcome => 'asked', clock => 0, %more };
}

sub kinds
{
	my ($attempts, @interventions) = @_;
	my $verdict = Nemesis::Target::Elections->judge(
		attempts => $attempts, interventions => \@interventions, session_timeout => 4);
	return join(', ', map { $_->{kind} } @{ $verdict->{violations} });
}

sub committed { my ($at) = @_; return (outcome => 'committed', commit_at => $at); }

is(kinds([ led('a', 1, 1, 2), led('a', 1, 3, 4, committed(4.5)), led('b', 2, 5, 6), led('a', 3, 7, 8) ]), '', 'one after the other');
is(kinds([ led('a', 1, 1, 2), led('a', 1, 5, 7), led('b', 2, 4, 6) ]), '', 'an answer that was asked for before another had his');
is(kinds([ led('a', 1, 1, 2), led('b', 2, 3, 4), led('a', 1, 4.5, 5) ]), 'two leaders', 'one that was asked for later');
is(kinds([ led('a', 1, 1, 2), led('b', 2, 3, 4), led('c', 3, 5, 6), led('a', 1, 6.5, 7) ]), 'two leaders', 'much later');
is(kinds([ led('a', 1, 1, 2, committed(4.1)), led('b', 2, 3, 4) ]), 'late commit', 'a commit after the next one led');
is(kinds([ led('a', 1, 1, 2, outcome => 'refused', told => 9), led('b', 2, 3, 4) ]), '', 'one that was refused');
is(kinds([ led('a', 1, 1, 2), led('b', 1, 3, 4) ]), 'term of two', 'one term, two servers');
is(kinds([ led('a', 2, 1, 2), led('b', 1, 3, 4) ]), 'two leaders', 'a lower term after a higher one');
is(kinds([ led('a', 1, 1, 2), led('b', 2, 3, 4, path => '/f'), led('a', 1, 4.5, 5) ]), '', 'another path');
is(kinds([ led('a', 1, 1, 2), { id => 'c.0', path => '/e', outcome => 'no', sqlstate => 'XX000', error => 'oh' } ]), 'unexpected error', 'an error');

my @late = (led('a', 1, 1, 2), led('b', 2, 3, 4), led('a', 1, 4.2, 5));
is(kinds(\@late, { from => 2.5, to => 2.6, path => '/e', czxids => [1] }), '', 'its node was deleted by an administrator');
is(kinds(\@late, { from => 2.5, to => 2.6, path => '/e', czxids => [7] }), 'two leaders', 'another one was');
is(kinds(\@late, { from => 2.5, to => 2.6, server => 'a' }), '', 'its session was closed by an administrator');
is(kinds(\@late, { from => 2.5, to => 2.6, server => 'b' }), 'two leaders', "another's was");
is(kinds(\@late, { from => 6, to => 6.1, server => 'a' }), 'two leaders', 'or later');
done_testing;
