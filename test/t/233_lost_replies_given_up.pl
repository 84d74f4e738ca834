# Copyright (c) 2026, zklock contributors
#
# Sessions that give up while the reply to the creation of their node is lost, or late: no node
# is left, and the next session gets the lock.
#
# Server a talks to ZooKeeper through a proxy that loses the k-th reply or request of a
# kind, and its connection with it; b talks to ZooKeeper directly.

use strict;
use warnings;

use Test::More;
use Zklock::Proxy;
use Zklock::Server;
use Zklock::Util qw(wait_until);
use Zklock::ZooKeeper;

my $zk    = Zklock::ZooKeeper->standalone;
my $proxy = Zklock::Proxy->start($zk);
# Long enough to expire never, which is checked at the end; the pause between attempts to
# connect is a sixtieth of it.
my @conf = ("zklock.session_timeout = '12s'");
my $a    = Zklock::Server->new('a', zookeeper => $proxy, conf => \@conf);
my $b    = Zklock::Server->new('b', zookeeper => $zk, conf => \@conf);
my $id   = $a->session_id;

my @as = map { $a->session(name => "a$_") } 1 .. 4;
my @bs = map { $b->session(name => "b$_") } 1 .. 2;

my @fates = ([ lose_reply => 'reply' ], [ lose_request => 'request' ]);

my %give_up = (
	'pg_cancel_backend' => sub {
		my ($s) = @_;
		$s->cancel;
		return $s->result->{sqlstate} eq '57014';
	},
	'pg_terminate_backend' => sub {
		my ($s) = @_;
		$s->terminate;
		return $s->result->{sqlstate} eq '57P01';
	},
	'a client that vanishes' => sub {
		my ($s) = @_;
		my $pid = $s->pid;
		$s->vanish;
		# The server notices when it next writes to the client.
		$a->terminate_backend($pid);
		return 1;
	},
	'statement_timeout' => sub { my ($s) = @_; return $s->result->{sqlstate} eq '57014'; },
	'lock_timeout'      => sub { my ($s) = @_; return $s->result->{sqlstate} eq '55P03'; },
	'the timeout'       => sub {
		my ($s) = @_;
		my $result = $s->result;
		return ($result->{text} || '') eq 'f' || $result->{sqlstate} eq '58030';
	});

my $n = 0;

foreach my $how (sort keys %give_up)
{
	foreach my $when ('before the connection is lost', 'while it is lost', 'and the reply comes late')
	{
		subtest "sessions that give up by $how, $when, leave nothing behind" => sub {
			foreach my $k (1 .. 3)
			{
				my $path = '/l/cancel-' . ++$n;
				my @sessions = map { $a->session } 1 .. $k;
				my $fault = $proxy->hold_reply(op => 'create2', path => "^$path/");
				# To give up before the node is asked for would be no test: then it is tried again,
				# with more time.
				my $asked;
				for (my $ms = 300; !$asked; $ms *= 2)
				{
					my $call = $how eq 'the timeout' ? "zk_lock('$path', '$ms ms')" : "zk_lock('$path')";
					if ($how =~ /^\w+_timeout$/)
					{
						$_->query("SET $how = '$ms ms'") foreach @sessions;
					}
					$_->query_start("SELECT $call") foreach @sessions;
					foreach my $s ($how =~ /timeout/ ? () : @sessions) { $a->wait_waiting($s); }
					wait_until { ($asked = $proxy->has_fired($fault)) || !grep { $_->busy } @sessions }
					'the node to be asked for, or everybody to give up';
					$asked ||= $proxy->has_fired($fault);
					$_->result foreach $asked ? () : @sessions;
				}
				wait_until { $zk->children($path) == 1 } 'the node';
				if ($when =~ /^while/)
				{
					$proxy->cut;
					$a->wait_session('connecting');
				}
				my $given_up = grep { $give_up{$how}->($_) } @sessions;
				is($given_up, $k, "$k given up by $how, $when");
				$proxy->cut unless $when =~ /^and/;
				$as[0]->query_start("SELECT zk_lock('$path')");
				$proxy->heal;
				is($as[0]->finish, 't', 'who asks afterwards gets the lock');
				# It may have joined the queue of those who gave up: one node in any case.
				wait_until { $zk->children($path) == 1 } "one node to be left in $path";
				$a->one_node($zk, $path, 'and has the only node');
				$as[0]->query("SELECT zk_unlock('$path')");
				$_->disconnect foreach @sessions;
				$a->assert_clean($zk, $path);
			}
		};
	}
}

foreach my $fate (@fates)
{
	my ($lose, $thing) = @$fate;
	subtest "sessions that give up leave no node when the $thing of a create is lost and nobody comes afterwards" => sub {
		foreach my $k (1 .. 3)
		{
			my @paths = map { "/l/orphan-$thing-$k-$_" } 1 .. $k;
			# All creates are on their way when the connection breaks, with the k-th.
			$bs[0]->query("SELECT zk_lock('$_')") foreach @paths;
			my $fault = $proxy->$lose(op => 'create2', nth => $k, path => "^/l/orphan-$thing-$k-");
			$as[$_]->query_start("SELECT zk_lock('$paths[$_]')") foreach 0 .. $#paths;
			ok($proxy->fired($fault), "$thing $k of create is lost");
			$as[$_]->cancel foreach 0 .. $#paths;
			is($as[$_]->result->{sqlstate}, '57014', 'cancelled') foreach 0 .. $#paths;
			wait_until { $zk->children($_) == 1 } "only the holder in $_" foreach @paths;
			pass('nothing is left but the holder');
			$bs[0]->query("SELECT zk_unlock('$_')") foreach @paths;
			Zklock::Server->assert_clean($zk, [ $a, $b ], @paths);
		}
	};
}

is($a->session_id, $id, 'it was the same session all the time');
is($a->zk_session->{expirations}, 0, 'without an expiration');
$_->disconnect foreach @as, @bs;
Zklock::Server->assert_clean($zk, [ $a, $b ]);
done_testing;
