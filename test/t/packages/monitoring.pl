# Copyright (c) 2026, zklock contributors
#
# The directory monitoring: Debian's sql_exporter and Prometheus read a server with its files, the
# alerts fire when a lock is lost and when the lease is gone, elections and claims are shown, and
# every query of the dashboard and of pgwatch's metrics answers.

use Zklock::Test;
use File::Basename qw(dirname);
use HTTP::Tiny;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Zklock::Cast;
use Zklock::Process;
use Zklock::Util qw(on_failure tail);

plan skip_all => 'Prometheus and sql_exporter are not installed'
  if grep { !-x "/usr/bin/$_" } qw(prometheus promtool prometheus-sql-exporter);

my $files     = dirname(__FILE__) . '/../../../monitoring';
my $directory = PostgreSQL::Test::Utils::tempdir('monitoring');
my $http      = HTTP::Tiny->new(timeout => 10);
my ($zk, $server) = cast('main', conf => [ q(zklock.session_timeout = '4s'),
	q(listen_addresses = '127.0.0.1'), q(zklock.elections = '/watched/leader, /watched/other') ]);
$server->value('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
$server->value(q{SELECT zk_claim('/watched/job', now())});

# A file's text with the paths of claims that a DBA writes into it
sub with_claims($text) { return $text =~ s{ARRAY\[\]}{ARRAY['/watched/job']}r; }

# Starts a program, and returns it when it serves this URL.
sub start($ready, $name, @arguments)
{
	my $log     = "$PostgreSQL::Test::Utils::log_path/$name.log";
	my $process = Zklock::Process->new(name => $name, log => $log, argv => [ $name, @arguments ]);
	on_failure($name, sub { return tail($log, 20); });
	wait_until { $http->get($ready)->{success} } "$name to serve $ready";
	return $process;
}

# Debian's programs with this project's files, but another connection, and a second instead of 15 between two looks
my ($exporter, $prometheus) = map { '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port() } 1, 2;
my $config = with_claims(slurp_file("$files/sql_exporter.yml"));
$config =~ s{^  - postgres:.*$}{"  - 'postgres://monitor\@127.0.0.1:" . $server->port . "/postgres?sslmode=disable'"}me or die;
$config =~ s/^  interval: .*$/  interval: 1s/m or die;
append_to_file("$directory/exporter.yml", $config);
append_to_file("$directory/alerts.yml", slurp_file("$files/alerts.yml"));
append_to_file("$directory/prometheus.yml", <<"END");
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [ alerts.yml ]
scrape_configs:
- job_name: sql
  static_configs:
  - targets: [ '$exporter' ]
END
my @running = (
	start("http://$exporter/metrics", 'prometheus-sql-exporter',
		'-config.file', "$directory/exporter.yml", '-web.listen-address', $exporter),
	start("http://$prometheus/-/ready", 'prometheus', "--config.file=$directory/prometheus.yml",
		"--storage.tsdb.path=$directory/data", "--web.listen-address=$prometheus"));

# What Prometheus answers
sub get($path, %parameters)
{
	my $response = $http->get("http://$prometheus/api/v1/$path?" . $http->www_form_urlencode(\%parameters));
	my $answer = decode_json($response->{content});
	die "$path @{[ %parameters ]}: $answer->{error}" unless $answer->{status} eq 'success';
	return $answer->{data};
}

sub series($expression) { return @{ get('query', query => $expression)->{result} }; }

sub wait_value($expression, $value)
{
	my @values;
	wait_until { @values = map { $_->{value}[1] } series($expression); @values == 1 && $values[0] == $value }
	sub { "$expression to be $value; it is @values" };
	return;
}

# The alerts that fire, by name
sub firing { return map { $_->{labels}{alertname} => $_ } grep { $_->{state} eq 'firing' } @{ get('alerts')->{alerts} }; }
sub wait_alert($name) { return wait_until { my %firing = firing(); $firing{$name} } "alert $name to fire"; }
sub wait_no_alert($name) { return wait_until { my %firing = firing(); !$firing{$name} } "alert $name to end"; }

subtest 'promtool finds nothing wrong with the alerts, which fire when they should, and only then' => sub {
	my ($printed, $errors) = run_command([ qw(promtool check rules), "$files/alerts.yml" ]);
	like($printed, qr/SUCCESS: \d+ rules found/, 'promtool check rules') or diag($printed, $errors);
	($printed, $errors) = run_command([ qw(promtool test rules), dirname(__FILE__) . '/../../monitoring/alerts_test.yml' ]);
	like($printed . $errors, qr/SUCCESS/, 'promtool test rules') or diag($printed, $errors);
};

subtest 'locks that are held, waited for and lost are counted, and a loss is an alert' => sub {
	hold($server, 'holder', '/watched/a');
	queue($server, 'waiter', '/watched/a');
	$server->value(q{SELECT zk_reserve('/watched/b', '1h')});
	wait_value('sql_zklock_locks{state="held", col="count"}', 2);
	wait_value('sql_zklock_locks{state="waiting", col="count"}', 1);
	wait_value('sql_zklock_session{col="connected"}', 1);
	wait_value('sql_zklock_session{col="locks_in_use"}', 5);
	my $held = $server->value(q{SELECT extract(epoch FROM now() - min(granted_at)) FROM zk_locks});
	wait_until { my ($row) = series('sql_zklock_locks{state="held", col="oldest_hold_seconds"}'); $row->{value}[1] >= $held }
	'the time of the oldest hold';
	my %firing = firing();
	is_deeply([ sort keys %firing ], [], 'no alert fires while all is well');
	my ($lock) = $server->locks(q(state = 'held' AND path = '/watched/a'));
	$zk->shell->delete("/watched/a/$lock->{node}");
	my $alert = wait_alert('ZklockLockLost');
	is($alert->{labels}{severity}, 'critical', 'the alert fires');
	like($alert->{annotations}{summary}, qr/^1 locks of sessions on 127\.0\.0\.1:\d+ are lost$/, 'and says where');
	$s{holder}->query('SELECT zk_unlock_all()');
	is($s{waiter}->finish, 't', 'the one who waited holds the lock');
	ok(wait_no_alert('ZklockLockLost'), 'and the alert ends when the lock is released');
	$s{waiter}->query('SELECT zk_unlock_all()');
	wait_alert('ZklockLocksWereLost');
	my ($row) = series('sum(sql_zklock_stats{col="waits"})');
	wait_value('sum(sql_zklock_waits{le="+Inf"})', $row->{value}[1]);
};

subtest 'who leads, where a candidacy has failed, and when a slot was claimed' => sub {
	wait_value('sql_zklock_elections{path="/watched/leader", col="is_leader"}', 1);
	wait_value('sum(sql_zklock_elections{col="has_leader"})', 2);
	wait_value('sum(sql_zklock_elections{col="failed"})', 0);
	$server->set_conf('zklock.elections' => '/watched/leader');
	wait_until { !$zk->children('/watched/other') } 'the server to stand there no more';
	my $lock = $zk->foreigner('/watched/other');
	$server->set_conf('zklock.elections' => '/watched/leader, /watched/other');
	wait_value('sql_zklock_elections{path="/watched/other", col="failed"}', 1);
	wait_value('sql_zklock_elections{path="/watched/other", col="has_leader"}', 0);
	$server->set_conf('zklock.elections' => '/watched/leader');
	wait_value('count(sql_zklock_elections)', 3);
	$zk->shell->delete($lock);
	is($server->value(q{SELECT floor(extract(epoch FROM claimed_at)) FROM zk_last_claim('/watched/job')}),
		int((series('sql_zklock_claims{path="/watched/job"}'))[0]{value}[1]), 'the time of the claim');
};

subtest 'each query of the dashboard has an answer' => sub {
	my $dashboard = decode_json(slurp_file("$files/dashboard.json"));
	my %series = map { $_->{metric}{__name__} => 1 } series('{__name__=~"sql_zklock_.*"}');
	my %shown;
	foreach my $panel (@{ $dashboard->{panels} })
	{
		foreach my $target (@{ $panel->{targets} })
		{
			my $expression = $target->{expr} =~ s/\$host/.*/gr =~ s/\$__rate_interval/1m/gr;
			$shown{$_} = 1 foreach $expression =~ /\b(sql_zklock_\w+)/g;
			cmp_ok(scalar(my @result = series($expression)), '>', 0, "$panel->{title}: $target->{refId}");
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
			my $row = decode_json($session->query("SELECT row_to_json(q) FROM (" . with_claims($sql) . ') q LIMIT 1') || '{}');
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
	ok(wait_alert('ZklockLeaseGone'), 'ZooKeeper stands still, and the alert fires');
	$zk->resume;
	ok(wait_no_alert('ZklockLeaseGone'), 'it goes on, and the alert ends');
};

$server->set_conf('zklock.elections' => '');
done_clean($zk, $server);
