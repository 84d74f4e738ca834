# Copyright (c) 2026, zklock contributors
#
# A standby stands at no election, and stands when it is promoted. Its former primary, which
# runs on, leads no more.

use Zklock::Test;
use Zklock::Cast qw(fails);
use Zklock::Election;

my $path = '/e/leader';
my @conf = ("zklock.elections = '$path'", "zklock.session_timeout = '4s'");
my ($zk, $proxy, $primary) = cast('primary', proxied => 'primary', allows_streaming => 1, conf => \@conf);
my $election = Zklock::Election->new($zk, $path);
$election->wait_state($primary, 'elected');
my $standby = Zklock::Server->standby('standby', primary => $primary, zookeeper => $zk, conf => [@conf]);

subtest 'a standby does not stand' => sub {
	$election->wait_state($standby, 'stop');
	is($election->leads($standby), 'f', 'it does not lead');
	is(scalar $zk->children($path), 1, 'and has no node');
	is($standby->value("SELECT zk_resign('$path')"), 'f', 'it has nothing to give up');
	is($standby->value("SELECT server FROM zk_leader('$path')"), 'primary', 'it can tell who leads');
	is($primary->session->query("SELECT zk_resign('$path')"), 't', 'the primary resigns');
	is($election->leads($primary), 't', 'and leads again, as nobody else stands');
};

subtest 'a path keeps its place in shared memory until the server is started again' => sub {
	my $mark = $standby->log_mark;
	foreach my $round (1 .. 5)
	{
		$standby->set_conf('zklock.elections' => join(', ', $path, map { "/e/$round.$_" } 1 .. 63));
		$standby->wait_value("SELECT count(*) FROM zk_elections WHERE path = '/e/$round.1'", 1);
	}
	$standby->wait_log(qr{election "/e/5\.4": cannot stand there before the server is started again}, $mark);
	is($standby->value('SELECT count(*) FROM zk_elections'), 4, 'there are places for 256 paths');
	$standby->set_conf('zklock.elections' => $path);
	$standby->wait_value('SELECT string_agg(path, $$ $$) FROM zk_elections', $path);
};

subtest 'a promoted standby stands, and leads when its former primary is isolated' => sub {
	$standby->promote;
	$election->wait_state($standby, 'ready');
	is($election->leads($primary), 't', 'the former primary leads as long as it can prove it');
	$election->watch($primary, $standby);
	$proxy->cut;
	$election->wait_state($standby, 'elected');
	is($election->leads($primary), 'f', 'which does not lead any more');
	foreach my $timeout ('0', '100ms')
	{
		fails($primary->session->try("SELECT zk_await_leadership('$path', '$timeout')"), '58030', "to wait for leadership there ($timeout)",
			message => qr{could not use ZooKeeper path "\Q$path\E": ZooKeeper cannot be reached});
	}
	$proxy->heal;
	$election->wait_state($primary, 'ready');
	$election->led_once;
};

$election->over($primary, $standby);
