# Copyright (c) 2026, zklock contributors
#
# The checker of the fault run's claims, on histories made by hand: good ones pass, and each
# kind of violation is found.

use Zklock::Test;
use FindBin;
use lib "$FindBin::Bin/../nemesis/lib";
use Nemesis::Target;
use Nemesis::Target::Claims;

my $number = 0;

sub attempt
{
	my ($outcome, $slot, $asked, $told, %more) = @_;
	$number++;
	return { id => "c.$number", outcome => $outcome, slot => $slot, asked => $asked, told => $told, path => '/p', %more };
}

sub kinds_are
{
	my ($expected, $name, @attempts) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @found = @{ Nemesis::Target::Claims->judge(@attempts)->{violations} };
	is(join(', ', map { $_->{kind} } @found), $expected, $name) or diag explain \@found;
	return;
}

kinds_are('', 'one after the other', attempt(claimed => 1, 1, 2), attempt(claimed => 2, 3, 4));
kinds_are('', 'one of many', attempt(claimed => 1, 1, 4), map { attempt(refused => 1, $_, $_ + 1) } 1, 2, 3);
kinds_are('', 'the same of two paths', attempt(claimed => 1, 1, 2), attempt(claimed => 1, 1, 2, path => '/q'));
kinds_are('', 'at once, the later first', attempt(claimed => 1, 1, 4), attempt(claimed => 2, 2, 3));
kinds_are('', 'refused, since somebody with an error may have it', attempt(failed => 1, 1, 2, sqlstate => '58030'), attempt(refused => 1, 3, 4));
kinds_are('', 'an error changes nothing', attempt(failed => 1, 1, 2), attempt(claimed => 1, 3, 4));
kinds_are('slot claimed twice', 'at once', attempt(claimed => 1, 1, 3), attempt(claimed => 1, 2, 4));
kinds_are('slot claimed twice', 'one after the other', attempt(claimed => 1, 1, 2), attempt(claimed => 1, 3, 4));
kinds_are('claim order', 'an earlier slot', attempt(claimed => 2, 1, 2), attempt(claimed => 1, 3, 4));
kinds_are('slot lost', 'nobody has it', attempt(claimed => 1, 1, 2), attempt(refused => 2, 3, 4));
kinds_are('slot lost', 'nobody has asked for it yet', attempt(refused => 2, 1, 2), attempt(claimed => 2, 3, 4));
kinds_are('unexpected error', 'out of memory', attempt(failed => 1, 1, 2, sqlstate => '53200', error => 'out of memory'));

is(join(' ', map { $_->name } Nemesis::Target->all('claims', 'locks')), 'claims locks', 'targets are found by name');
ok(!eval { Nemesis::Target->all('nonsense'); 1 }, 'there is no target nonsense');

done_testing;
