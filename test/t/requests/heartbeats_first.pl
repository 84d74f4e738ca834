# Copyright (c) 2026, zklock contributors
#
# A role asks for as much as it can, and nobody else loses a lock: heartbeats overtake all
# requests that wait to be sent; requests/turns.pl has how.

use Zklock::Test;
use Zklock::Cast;

# What mallory does is bounded by its amount, not by time; so slow machines only take longer.
my $clients = 85;
my $rounds  = 8;

# Deep paths fill a small heap.
my ($zk, $a) = cast('a',
	zk              => { heap => 1024 },
	max_connections => 120,
	timeout         => '6s',
	conf            => ["log_statement = 'none'"]);

subtest 'a flood of long random paths costs nobody a lock' => sub {
	hold($a, 'victim', '/victim');
	my $token = $s{victim}->query("SELECT zk_fencing_token('/victim')");
	my $mark  = $a->log_mark;

	# 1 KB of path, as deep as can be, and as deep as is created.
	my @mallory = map { $a->session(name => "mallory $_") } 1 .. $clients;
	foreach my $i (0 .. $#mallory)
	{
		my $levels = $i % 2 ? 500 : 13;
		$mallory[$i]->query_start("DO \$\$ BEGIN FOR i IN 1 .. $rounds LOOP
				BEGIN
					PERFORM zk_lock('/m/' || random() || repeat('/a', $levels), '5s');
				EXCEPTION WHEN OTHERS THEN
				END;
				PERFORM zk_unlock_all();
			END LOOP; END \$\$");
	}
	my %seen;
	wait_until
	{
		$seen{ $a->value("SELECT state FROM zk_locks WHERE path = '/victim'") }++;
		!grep { $_->busy } @mallory;
	}
	'mallory to be done', 300;
	ok($_->result->{ok}, $_->name . ' has done its worst') foreach @mallory;
	is_deeply([ keys %seen ], ['held'], 'the lock was held all the time');
	unlike($a->log_since($mark), qr/no longer proved to be alive|[Ll]ocks lost/, 'the log knows of no doubt');
	is($s{victim}->query("SELECT zk_fencing_token('/victim')"), $token, 'and its holder has it still');
	$_->disconnect foreach @mallory;
	all_disconnect();
};

done_clean($zk, $a);
