# Copyright (c) 2026, zklock contributors
#
# The work that a session's permits cause in the worker grows with their number, not with its
# square, so that thousands of them are no burden on others. The test measures the processor
# time that the worker has used, in ticks, and not how long anything takes.

use Zklock::Test;
use PostgreSQL::Test::Utils;

my ($zk, $a) = cast('a', timeout => '30s', zk => { request_log => 0 }, conf => ["log_statement = 'none'"]);
my $s     = $a->session;
my $other = $a->session;
my ($few, $many, $rounds) = (250, 1400, 100);

sub ticks
{
	my @fields = split / /, slurp_file('/proc/' . $a->worker_pid . '/stat') =~ s/.*\) //sr;
	return $fields[11] + $fields[12];
}

sub hold_permits
{
	my ($n, $more) = @_;
	is($s->query("SELECT count(*) FROM generate_series(1, $more) WHERE zk_semaphore_acquire('/p/many', 9999, '0')"),
		$more, "a session has $n permits");
	return;
}

# What it takes to acquire and release another one, again and again
sub work
{
	my $begun = ticks();
	$s->query("DO \$\$ BEGIN FOR i IN 1 .. $rounds LOOP
		PERFORM zk_semaphore_acquire('/p/many', 9999, '0'); PERFORM zk_semaphore_release('/p/many');
	END LOOP; END \$\$");
	return ticks() - $begun;
}

hold_permits($few, $few);
my $work = work();
hold_permits($many, $many - $few);
my $more = work();
note("$work ticks with $few permits, $more with $many");
cmp_ok($more, '<=', ($work + 1) * $many / $few, 'the work grows with their number, and no faster');
is($other->query("SELECT zk_lock('/p/other') AND zk_unlock('/p/other')"), 't', 'others are served');
is($other->query("SELECT zk_semaphore_acquire('/p/many', 1, '0')"), 'f', 'the permits are held');

$_->disconnect foreach $s, $other;
$a->assert_clean($zk, '/p/many/leases', '/p/other');
done_testing;
