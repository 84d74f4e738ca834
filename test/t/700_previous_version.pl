# Copyright (c) 2026, zklock contributors
#
# The library of the previous version: what it says to newer SQL, and servers that run it lock
# the same paths as servers of this version while a fleet is upgraded one by one.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Zklock::Cast;
use Zklock::Catalog qw(call_all);
use Zklock::Server;
use Zklock::Util qw(increasing);
use Zklock::ZooKeeper;

my $previous = $ENV{ZKLOCK_PREVIOUS_STAGE};
plan skip_all => 'there is no build of the previous version (ZKLOCK_PREVIOUS_STAGE)' unless $previous;
# What a server without faults, and of the previous version, does is of interest.
my $current = $ENV{ZKLOCK_STAGE} or plan skip_all => 'zklock is installed, and so are its scripts';

# What is installed for the old server; a package manager replaces files like this.
my $stage = PostgreSQL::Test::Utils::tempdir('installed');
sub replace
{
	my ($from, $what) = @_;
	chomp(my $directory = `pg_config --$what`);
	system_or_bail('mkdir', '-p', "$stage$directory");
	system_or_bail('cp', '-R', '--remove-destination', "$from$directory/.", "$stage$directory");
	return;
}
replace($previous, $_) foreach qw(pkglibdir sharedir);

my $zk  = Zklock::ZooKeeper->standalone;
my $new = Zklock::Server->new('new', zookeeper => $zk);
my $old = Zklock::Server->new('old', zookeeper => $zk, stage => $stage);
is($old->value(q{SELECT extversion FROM pg_extension WHERE extname = 'zklock'}), '1.0', 'a server of the previous version');

sub token_of { my ($session, $path) = @_; return $session->query("SELECT zk_fencing_token('$path')"); }

subtest 'servers of both versions exclude each other, first come, first served' => sub {
	my @tokens;
	hold($new, 'first', '/fleet/a');
	queue($old, 'second', '/fleet/a');
	$old->wait_queued($s{second}, '/fleet/a');
	queue($new, 'third', '/fleet/a');
	$new->wait_queued($s{third}, '/fleet/a');
	$old->settle;    # the fourth would join the second if the third had not been noticed
	queue($old, 'fourth', '/fleet/a');
	my @line = qw(first second third fourth);
	foreach my $i (0 .. $#line)
	{
		my $session = $s{ $line[$i] };
		is($session->finish, 't', "the $line[$i] gets it") if $i;
		push @tokens, token_of($session, '/fleet/a');
		is($_->lock_count(q{path = '/fleet/a' AND state = 'held'}), $_ == ($i % 2 ? $old : $new) ? 1 : 0, $_->name . ': holders')
		  foreach $new, $old;
		is($session->query(q{SELECT zk_unlock('/fleet/a')}), 't', 'and releases it');
	}
	ok(increasing(@tokens), 'with tokens that increase');
};

subtest 'and so do shared locks, upgrades, trees and semaphores' => sub {
	foreach my $pair ([ $new, $old ], [ $old, $new ])
	{
		my ($one, $other) = map { $_->session } @$pair;
		my $name = join(' and ', map { $_->name } @$pair);
		$_->query(q{SELECT zk_lock_shared('/fleet/s')}) foreach $one, $other;
		is($other->query(q{SELECT zk_try_lock('/fleet/s')}), 'f', "$name: no writer beside a reader");
		is($one->query(q{SELECT zk_unlock_shared('/fleet/s')}), 't', 'one reader goes');
		is($other->query(q{SELECT zk_lock('/fleet/s')}), 't', 'the other becomes a writer');
		is($one->query(q{SELECT zk_try_lock_shared('/fleet/s')}), 'f', 'beside whom nobody reads');
		is($other->query(q{SELECT zk_unlock('/fleet/s'), zk_unlock_shared('/fleet/s')}), 't|t', 'until it is gone');
		is($one->query(q{SELECT zk_lock_tree('/fleet/t/a/b', '/fleet/t')}), 't', 'a path below another');
		is($other->query(q{SELECT zk_lock('/fleet/t/a', '0')}), 'f', 'keeps that one');
		is($one->query(q{SELECT zk_unlock_tree('/fleet/t/a/b', '/fleet/t')}), 't', 'until it is free');
		is($_->query(q{SELECT zk_semaphore_acquire('/fleet/p', 2)}), 't', 'a permit') foreach $one, $other;
		is($one->query(q{SELECT zk_semaphore_acquire('/fleet/p', 2, '0')}), 'f', 'a third one there is not');
		is($_->query(q{SELECT zk_semaphore_release('/fleet/p')}), 't', 'released') foreach $one, $other;
		$_->disconnect foreach $one, $other;
	}
};

subtest 'new SQL says that the library is old, and changes nothing' => sub {
	replace($current, $_) foreach qw(pkglibdir sharedir);
	$old->value('CREATE DATABASE another');
	my $another = $old->session(dbname => 'another');
	my $session = $old->session;
	foreach my $result ($another->try('CREATE EXTENSION zklock'), $session->try('ALTER EXTENSION zklock UPDATE'))
	{
		is($result->{sqlstate}, '55000', 'refused');
		like($result->{message}, qr/the server has loaded an older zklock library than extension version 1\.1 needs/, 'for what it is');
		like($result->{hint}, qr/^Restart the server/, 'with what to do');
	}
	is($another->query(q{SELECT count(*) FROM pg_extension WHERE extname = 'zklock'}), '0', 'the new database has none');
	is($session->query(q{SELECT extversion FROM pg_extension WHERE extname = 'zklock'}), '1.0', 'the old one has the old version');
	is($session->query(q{SELECT zk_lock('/fleet/a'), zk_unlock('/fleet/a')}), 't|t', 'and locks');
	$_->disconnect foreach $another, $session;
};

subtest 'a server that crashed with the old library goes on with the new one' => sub {
	hold($old, 'crashing', '/fleet/a');
	queue($new, 'waiting', '/fleet/a');
	$old->kill9;
	delete $s{crashing};
	$old->start_again;
	$old->wait_session;
	is($s{waiting}->finish, 't', 'the lock of its former session is free');
	is($s{waiting}->query(q{SELECT zk_unlock('/fleet/a')}), 't', 'and is released');
	my $session = $old->session;
	ok($session->try('ALTER EXTENSION zklock UPDATE')->{ok}, 'the extension is updated');
	is($session->query('SELECT zk_lock(ARRAY[path]) FROM zk_contenders($$/fleet/a$$), LATERAL (SELECT $$/fleet/b$$) p (path)'), '',
		'new functions are there');
	$session->disconnect;
};

subtest 'back with the old library, what only the new one has is an error, and never a crash' => sub {
	$old->stop;
	replace($previous, 'pkglibdir');
	$old->start;
	$old->wait_value(q{SELECT state FROM zk_session()}, 'connected');
	my $session = $old->session;
	my %state = call_all($session);
	is_deeply([ grep { $state{$_} eq '42883' && !/zk_(contenders|availability|xact_queue)/ && /zk_(lock|xact|try|unlock|fenc|semaphore)/ } sort keys %state ], [],
		'functions of 1.0 are there');
	is($state{'SELECT * FROM zk_contenders(NULL::text)'}, '42883', 'a new one is not');
	is_deeply([ grep { $state{$_} !~ /^(?:00000|22004|42883)$/ } sort keys %state ], [], 'no other error');
	is($session->query(q{SELECT zk_lock('/fleet/a'), zk_unlock('/fleet/a')}), 't|t', 'and it locks');
	$session->disconnect;
	$old->stop;
	replace($current, 'pkglibdir');
	$old->start;
	$old->wait_session;
};

all_disconnect;
Zklock::Server->assert_clean($zk, [ $new, $old ], qw(/fleet/a /fleet/s /fleet/t/a/b /fleet/p/leases /fleet/p/locks));
done_testing;
