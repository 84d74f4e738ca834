# Copyright (c) 2026, zklock contributors
#
# Requests and replies that get lost while a server stands, or resigns: it has one node, in
# the right place, in each family of names, and n_ has no name by which it could be found.

use Zklock::Test;
use Zklock::Election;

my ($zk, $proxy, $a, $b) = cast('a b', proxied => 'a', timeout => '20s');
my $id    = $a->session_id;
my $s     = $a->session;
my %names = (curator_latch => 'latch', zookeeper => 'support', lock => 'lock');

sub stand($server, $setting) { $server->set_conf('zklock.elections' => $setting); return; }
sub term($path) { return $s->query("SELECT zk_fencing_token('$path')"); }

# Whose the nodes are, the oldest first; none of them may go in between
sub owners($path)
{
	my %name = ($a->session_id => 'a', $b->session_id => 'b');
	my @owners = eval { $zk->owners($path) } or return 'gone';
	return join ' ', map { $name{$_} // $_ } @owners;
}

subtest 'the view does not wait for an answer of ZooKeeper' => sub {
	my $path = '/l/view';
	my $view = "SELECT state, leader FROM zk_elections WHERE path = '$path'";
	Zklock::Election->new($zk, $path)->stand($b, $a);
	$a->wait_value($view, 'ready|b');
	my $held = $proxy->hold_request(op => 'getChildren', path => "^$path\$");
	$s->query("SET statement_timeout = '10s'");
	is($s->query($view), 'ready|', 'it tells what is known here');
	ok($proxy->fired($held), 'who leads elsewhere was asked');
	$proxy->heal;
	$s->query('RESET statement_timeout');
	$a->wait_value($view, 'ready|b');
	stand($_, '') foreach $a, $b;
};

foreach my $case (map { [ $_, 'lose_reply' ], [ $_, 'lose_request' ] } sort keys %names)
{
	my ($names, $lose) = @$case;
	my $path     = "/l/$names{$names}-$lose";
	my $election = Zklock::Election->new($zk, $path);

	# Something is done, and its request fares so.
	my $strike = sub ($what, $op, $do) {
		my $fault = $proxy->$lose(op => $op, path => "^$path/");
		$do->();
		ok($proxy->fired($fault), "$what: it has happened");
	};
	my $resign = sub { is($s->query("SELECT zk_resign('$path')"), 't', 'it resigns'); };
	my $rival_leads = sub { is($b->session->query("SELECT zk_await_leadership('$path', '30s')"), 't', 'the rival leads'); };

	subtest "$names: what fares so ($lose) is made up for" => sub {
		$strike->('a create', 'create2', sub { stand($a, "$path=$names"); $election->wait_state($a, 'elected'); });
		is(owners($path), 'a', 'there is one node');

		my ($term, @node) = (term($path), $zk->children($path));
		$strike->('a resignation without rivals', 'multi', $resign);
		is(owners($path), 'a', 'there is one node');
		isnt(($zk->children($path))[0], $node[0], 'which is another one');
		cmp_ok(term($path), '>', $term, 'with a higher term');

		stand($b, "$path=$names");
		$election->wait_state($b, 'ready');
		$term = term($path);
		$strike->('a resignation with a rival', 'multi', $resign);
		$rival_leads->();
		is(owners($path), 'b a', 'we are behind it, once');
		cmp_ok($b->value("SELECT zk_fencing_token('$path')"), '>', $term, 'its term is higher');

		$b->session->query("SELECT zk_resign('$path')");
		$election->wait_state($a, 'elected');
		my $hold  = $lose =~ s/lose/hold/r;
		my $fault = $proxy->$hold(op => 'multi', path => "^$path/");
		my $t     = $a->session;
		$t->query_start("SELECT zk_resign('$path')");
		ok($proxy->fired($fault), 'a resignation is under way');
		$a->restart_worker;
		$proxy->heal;
		is($t->finish, 't', 'the next worker has it resign');
		$rival_leads->();
		wait_until { owners($path) eq 'b a' } sub { "we are behind it, once, not '" . owners($path) . "'" };

		$strike->('a delete', 'delete', sub { stand($a, ''); });
		wait_until { owners($path) eq 'b' } 'its node to go';
		is($b->value("SELECT zk_is_leader('$path')"), 't', 'the other leads on');
		stand($b, '');
		wait_until { $zk->children($path) == 0 } 'the other node to go';
	};
}

is($a->session_id, $id, 'all in one ZooKeeper session');
done_clean($zk, $a, $b);
