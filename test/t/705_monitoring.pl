# Copyright (c) 2026, zklock contributors
#
# The directory monitoring: Debian's sql_exporter and Prometheus read a server with its files, the
# alerts fire when a lock is lost and when the lease is gone, and every query of the dashboard and
# of pgwatch's metrics answers.

use Zklock::Test;
use File::Basename qw(dirname);
use JSON::PP;
use PostgreSQL::Test::Utils;
use Zklock::Cast;
use Zklock::Monitoring;

plan skip_all => 'Prometheus and sql_exporter are not installed' unless Zklock::Monitoring->installed;

my $files = dirname(__FILE__) . '/../../monitoring';
my ($zk, $server) = cast('main', conf => [ q(zklock.session_timeout = '4s'), q(listen_addresses = '127.0.0.1') ]);
$server->value('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
my $exporter   = Zklock::Monitoring->exporter($server, 'monitor');
my $prometheus = Zklock::Monitoring->prometheus($exporter);

subtest 'promtool finds nothing wrong with the alerts, which fire when they should, and only then' => sub {
	my ($printed, $errors) = run_command([ qw(promtool check rules), "$files/alerts.yml" ]);
	like($printed, qr/SUCCESS: \d+ rules found/, 'promtool check rules') or diag($printed, $errors);
	($printed, $errors) = run_command([ qw(promtool test rules), dirname(__FILE__) . '/../monitoring/alerts_test.yml' ]);
	like($printed . $errors, qr/SUCCESS/, 'promtool test rules') or diag($printed, $errors);
};

subtest 'locks that are held, waited for and lost are counted, and a loss is an alert' => sub {
	hold($server, 'holder', '/watched/a');
	queue($server, 'waiter', '/watched/a');
	$prometheus->wait_value(qq(sql_zklock_locks{state="$_", col="count"}), 1) foreach qw(held waiting);
	$prometheus->wait_value('sql_zklock_session{col="connected"}', 1);
	$prometheus->wait_value('sql_zklock_session{col="locks_in_use"}', 2);
	my %firing = $prometheus->firing;
	is_deeply([ sort keys %firing ], [], 'no alert fires while all is well');
	my ($lock) = $server->locks(q(state = 'held'));
	$zk->shell->delete("/watched/a/$lock->{node}");
	my $alert = $prometheus->wait_alert('ZklockLockLost');
	is($alert->{labels}{severity}, 'critical', 'the alert fires');
	like($alert->{annotations}{summary}, qr/^1 locks of sessions on 127\.0\.0\.1:\d+ are lost$/, 'and says where');
	$s{holder}->query('SELECT zk_unlock_all()');
	is($s{waiter}->finish, 't', 'the one who waited holds the lock');
	ok($prometheus->wait_no_alert('ZklockLockLost'), 'and the alert ends when the lock is released');
	$s{waiter}->query('SELECT zk_unlock_all()');
	$prometheus->wait_alert('ZklockLocksWereLost');
	my ($row) = $prometheus->query('sum(sql_zklock_stats{col="waits"})');
	$prometheus->wait_value('sum(sql_zklock_waits{le="+Inf"})', $row->{value});
};

subtest 'each query of the dashboard has an answer' => sub {
	my $dashboard = decode_json(slurp_file("$files/dashboard.json"));
	my %series = map { $_->{metric}{__name__} => 1 } $prometheus->query('{__name__=~"sql_zklock_.*"}');
	my %shown;
	foreach my $panel (@{ $dashboard->{panels} })
	{
		foreach my $target (@{ $panel->{targets} })
		{
			my $expression = $target->{expr} =~ s/\$host/.*/gr =~ s/\$__rate_interval/1m/gr;
			$shown{$_} = 1 foreach $expression =~ /\b(sql_zklock_\w+)/g;
			cmp_ok(scalar(my @result = $prometheus->query($expression)), '>', 0, "$panel->{title}: $target->{refId}");
		}
	}
	is_deeply([ sort keys %shown ], [ sort keys %series ], 'all that is collected is shown');
};

subtest 'each metric of pgwatch has a time, and the gauges that it names' => sub {
	my ($json) = run_command([ '/usr/bin/python3', '-c',
		'import json, sys, yaml; json.dump(yaml.safe_load(open(sys.argv[1])), sys.stdout)', "$files/pgwatch.yaml" ]);
	my $definitions = decode_json($json);
	my $session = $server->session(user => 'monitor');
	foreach my $name (sort keys %{ $definitions->{metrics} })
	{
		my $metric = $definitions->{metrics}{$name};
		foreach my $sql (values %{ $metric->{sqls} })
		{
			my $row = decode_json($session->query("SELECT row_to_json(q) FROM ($sql) q LIMIT 1") || '{}');
			like($row->{epoch_ns}, qr/^\d{19}$/, "$name: a time in nanoseconds");
			ok(exists $row->{$_}, "$name: $_") foreach grep { $_ ne '*' } @{ $metric->{gauges} };
		}
	}
	is_deeply([ sort keys %{ $definitions->{presets}{zklock}{metrics} } ], [ sort keys %{ $definitions->{metrics} } ],
		'the preset has all of them');
	$session->disconnect;
};

subtest 'a lease that is gone is an alert, until it is back' => sub {
	$zk->pause;
	ok($prometheus->wait_alert('ZklockLeaseGone'), 'ZooKeeper stands still, and the alert fires');
	$zk->resume;
	ok($prometheus->wait_no_alert('ZklockLeaseGone'), 'it goes on, and the alert ends');
};

all_disconnect;
Zklock::Server->assert_clean($zk, [$server], '/watched/a');
done_testing;
