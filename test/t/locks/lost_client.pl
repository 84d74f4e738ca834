# Copyright (c) 2026, zklock contributors
#
# A client vanishes while its session waits, and PostgreSQL does not look for it (client_connection_check_interval = 0).
# What only the client could give back is not done for nobody: reservations, elements of queues, claims, persistent locks.

use Zklock::Test;
use PostgreSQL::Test::Utils;
use Zklock::Cast;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a');
is($a->value('SHOW client_connection_check_interval'), '0', "PostgreSQL's default");

my $psql = 0;

# Each returns the pid of a session that runs a statement, and code after which its client is gone.
my %ways = (
	'whose socket is closed' => sub ($sql) {
		my $victim = $a->session->query_start($sql);
		return ($victim->pid, sub { $victim->vanish });
	},
	'that is killed' => sub ($sql) {
		my $name   = 'victim' . ++$psql;
		my $client = IPC::Run::start([ 'psql', '-XAtq', '-d', $a->connstr('postgres') . " application_name=$name", '-c', $sql ]);
		$a->wait_value("SELECT count(*) FROM pg_stat_activity WHERE application_name = '$name' AND state = 'active'", 1);
		return ($a->value("SELECT pid FROM pg_stat_activity WHERE application_name = '$name'"), sub { $client->kill_kill(grace => 0) });
	});

# A test: the session has ended, and the log says why.
sub ended($pid, $mark, $what)
{
	$a->wait_value("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", 0);
	return $a->assert_log($mark, qr/\[$pid\].*FATAL:  connection to client lost/, "$what: its session ends");
}

foreach my $way (sort keys %ways)
{
	subtest "a client $way while its session waits reserves nothing" => sub {
		hold($b, 'holder', '/v/reserve');
		my $mark = $a->log_mark;
		my ($pid, $vanish) = $ways{$way}->("SELECT zk_reserve('/v/reserve', '1h')");
		$a->wait_row($pid, "state = 'waiting'", '/v/reserve');
		$vanish->();
		$s{holder}->query("SELECT zk_unlock('/v/reserve')");
		ended($pid, $mark, 'zk_reserve');
		is($a->lock_count("path = '/v/reserve' AND state <> 'releasing'"), 0, 'nothing is reserved');
		is(on($b, 'next')->query("SELECT zk_lock('/v/reserve', '30s') AND zk_unlock('/v/reserve')"), 't', 'the next one has the path');
	};

	foreach my $take ("zk_queue_take('/v/queue')", "zk_xact_queue_take('/v/queue')")
	{
		subtest "a client $way while its session waits takes no element: $take" => sub {
			my $mark = $a->log_mark;
			my ($pid, $vanish) = $ways{$way}->("SELECT $take");
			$a->wait_event($pid, 'element');
			$vanish->();
			my $element = on($b, 'producer')->query("SELECT zk_queue_offer('/v/queue', 'work')");
			ended($pid, $mark, $take);
			is(on($b, 'consumer')->query("SELECT convert_from(data, 'UTF8') FROM zk_xact_queue_take('/v/queue', '10s') AS t(element, data, token) WHERE element = '$element'"),
				'work', 'the next one gets it');
		};
	}
}

# What does not wait for others waits for ZooKeeper: for an answer before its write.
my %calls = (
	"zk_claim('/v/claim', now())"           => { held => [ op => 'exists', path => '^/v/claim$' ], nothing => "SELECT count(*) FROM zk_last_claim('/v/claim')" },
	"zk_lock_persistent('/v/persistent')"   => { held => [ op => 'create2', path => '^/v/persistent/' ], nothing => "SELECT count(*) FROM zk_contenders('/v/persistent')" },
	"zk_queue_offer('/v/offered', 'x')"     => { held => [ op => 'exists', path => '^/v/offered$' ], nothing => "SELECT count(zk_queue_peek('/v/offered'))" },
	"zk_queue_remove('/v/kept')"            => { held => [ op => 'getChildren', path => '^/v/kept$' ], before => "SELECT zk_queue_offer('/v/kept', 'x')", nothing => "SELECT count(*) - 1 FROM zk_queue_peek('/v/kept')" });

foreach my $call (sort keys %calls)
{
	subtest "a client that vanishes before the write of its call does not have it made: $call" => sub {
		my $victim = $a->session;
		my $pid    = $victim->pid;
		my $mark   = $a->log_mark;
		my $it     = $calls{$call};
		$b->value($it->{before}) if $it->{before};
		$proxy->hold_reply_of($victim, "SELECT $call", @{ $it->{held} }, any => 1);
		$victim->vanish;
		$proxy->heal;
		ended($pid, $mark, $call);
		wait_until { $b->value($it->{nothing}) == 0 } 'nothing to be left';
		is($b->value($it->{nothing}), 0, 'nothing has been done');
	};
}

$b->value("SELECT zk_queue_take('/v/kept', '0')");
done_clean($zk, $a, $b);
