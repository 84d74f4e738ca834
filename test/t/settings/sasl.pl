# Copyright (c) 2026, zklock contributors
#
# SASL, with a client library that has it: a ZooKeeper server that requires it (DIGEST-MD5) serves those who can, locks
# and outages are as they are without, and nodes belong to who has made them. And SASL that does not work: zk_session and
# the log say why, calls fail, and all goes on when it is mended. And GSSAPI, with a Kerberos server of our own.

use Zklock::Test;
use IO::Socket::INET;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Zklock::Cast;
use Zklock::Process;
use Zklock::Tls;
use Zklock::Util qw(secret);

plan skip_all => 'there is no client library with SASL (ZKLOCK_TLS_CLIENT)' unless Zklock::Tls->available;

# A password may have what separates the parameters.
my $secret = 'S3cret,of=the:Test';
my $dir    = PostgreSQL::Test::Utils::tempdir('sasl');
my $digest = "sasl:mechanism=DIGEST-MD5,user=zklock,password=$secret\n";

sub jaas($file, $module) { append_to_file("$dir/$file", "Server {\n$module;\n};\n"); return "-Djava.security.auth.login.config=$dir/$file"; }

# In FIPS mode, which is the default, ZooKeeper 3.9.6 does not accept DIGEST-MD5.
my @sasl = ('-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider', '-Dzookeeper.fips-mode=false',
	jaas('digest.conf', qq(org.apache.zookeeper.server.auth.DigestLoginModule required user_zklock="$secret")));
my @required = (@sasl, '-Dzookeeper.sessionRequireClientSASLAuth=true');

my $file = secret("$dir/a", $digest);
my ($zk, $a, $b) = cast(
	'a b',
	timeout     => '40s',
	zk          => { java => \@sasl },
	environment => Zklock::Tls->library,
	conf        => [ "zklock.auth_file = '$file'", q(zklock.acl = 'creator') ]);

# Restarts ZooKeeper with these options of Java.
sub rules(@java)
{
	$zk->stop;
	$zk->options(java => \@java);
	$zk->start(wait => 0);
	return;
}

# What zk_session says in the end of a server that does not get along
sub says($server, $error, $what)
{
	wait_until { ($server->zk_session->{last_error} // '') =~ $error }
	sub { "zk_session to say what is wrong: $what; it says: " . ($server->zk_session->{last_error} // '') };
	return pass($what);
}

# A server that is not to connect at once
sub stranger($name, @conf)
{
	return Zklock::Server->new($name, zookeeper => $zk, connect => 0, conf => \@conf, environment => Zklock::Tls->library);
}

subtest 'nodes belong to who has made them, and all who show the same share their locks' => sub {
	hold($a, 'one', '/s/a');
	queue($b, 'two', '/s/a');
	ok(!eval { $zk->shell->get('/s/a'); 1 } && $@ =~ /NoAuth/, 'who has shown nothing cannot even read the nodes');
	$s{one}->query('SELECT zk_unlock_all()');
	is($s{two}->finish, 't', 'who has shown the same takes its turn');
	$s{two}->query('SELECT zk_unlock_all()');
};

subtest 'a ZooKeeper server that requires it serves them in their sessions, with their locks' => sub {
	my $id = $a->session_id;
	hold($a, 'holder', '/s/held');
	rules(@required);
	$_->wait_session foreach $a, $b;
	is($a->session_id, $id, 'the session goes on');
	queue($b, 'waiter', '/s/held');
	$a->restart_worker;
	$a->wait_session;
	is($a->session_id, $id, 'so it does with the next worker');
	is($s{holder}->query("SELECT zk_unlock('/s/held')"), 't', 'and the lock is held');
	is($s{waiter}->finish, 't', 'until others get it');
	$s{waiter}->query('SELECT zk_unlock_all()');
};

subtest 'who has no credentials is refused there' => sub {
	my $c = stranger('c');
	says($c, qr/^authentication failed: ZooKeeper demands credentials/, 'it demands some');
	fails($c->session->try("SELECT zk_lock('/s/c')"), '42501', 'nor can it lock', detail => qr/ZAUTHFAILED|REQUIRESASL/);
	$c->stop;
};

subtest 'a wrong password costs nobody a lock, and is mended by the right one' => sub {
	my $id   = $a->session_id;
	my $mark = $a->log_mark;
	hold($a, 'holder', '/s/held');
	secret($file, $digest =~ s/S3cret/Wrong/r);
	rules(@required);
	says($a, qr/^authentication failed: ZooKeeper refused the credentials in "zklock.auth_file"$/, 'zk_session says so');
	$a->assert_log($mark, qr/LOG:  ZooKeeper refused the credentials in "zklock.auth_file"/, 'so does the log');
	wait_until { $a->zk_session->{state} eq 'authentication failed' } 'the state to be shown';
	fails(on($a, 'other')->try("SELECT zk_lock('/s/other')"), '42501', 'who asks for a lock is refused', detail => qr/ZAUTHFAILED/);
	is($s{holder}->query("SELECT zk_fencing_token('/s/held') > 0"), 't', 'who holds one has it');
	secret($file, $digest);
	$a->wait_session;
	is($a->session_id, $id, 'with the right password the session goes on');
	is($s{other}->query("SELECT zk_lock('/s/other')"), 't', 'and locks are granted');
	is($s{holder}->query("SELECT zk_unlock('/s/held')"), 't', 'the one that was held still is');
	$s{other}->query('SELECT zk_unlock_all()');
	$b->wait_session;
};

my $own = "$dir/c";

subtest 'parameters that cannot be used are named' => sub {
	my $c = stranger('faulty', "zklock.auth_file = '$own'", q(zklock.session_timeout = '6s'));
	my $form  = qr/SASL's parameters are mechanism=, service=, host=, user= and password=/;
	my $mech  = qr/the mechanism of SASL must be DIGEST-MD5 or GSSAPI/;
	my $needs = qr/SASL with DIGEST-MD5 needs user and password, and with GSSAPI neither/;
	# In this order no two that follow each other have the same answer.
	foreach my $case (
		[ 'sesame',                                      $form ],
		[ 'mechanism=PLAIN,user=zklock,password=x',      $mech ],
		[ '',                                            $form ],
		[ 'mechanism=DIGEST-MD5,user=zklock',            $needs ],
		[ 'mechanism=GSSAPI,door=open',                  $form ],
		[ 'mechanism=GSSAPI,user=zklock',                $needs ],
		[ 'user=zklock,password=x',                      $mech ],
		[ 'mechanism=DIGEST-MD5,password=x,user=zklock', $needs ])
	{
		my ($parameters, $why) = @$case;
		secret($own, "sasl:$parameters\n");
		says($c, qr/^could not use "zklock.auth_file": $why/, "$parameters");
	}
	secret($own, $digest =~ s/,user/,service=zookeeper,host=zk-sasl-md5,user/r);
	$c->wait_session;
	pass('with the right ones it connects');
	$c->stop;
};

subtest 'what the database server lacks for it is named' => sub {
	PostgreSQL::Test::Utils::system_or_bail(qw(openssl req -x509 -newkey ed25519 -nodes -subj /CN=authority -keyout),
		"$dir/ca.key", '-out', "$dir/ca.pem");
	my $c = stranger('lacking', "zklock.auth_file = '$file'", "zklock.tls_ca_file = '$dir/ca.pem'");
	says($c, qr/^could not use "zklock.auth_file": ZooKeeper's client library cannot do SASL together with TLS; use stunnel/, 'not both');
	$c->stop;

	$c = Zklock::Server->new('bare', zookeeper => $zk, connect => 0, conf => ["zklock.auth_file = '$file'"],
		environment => { %{ Zklock::Tls->library }, SASL_PATH => $dir });
	says($c, qr/no mechanism available/, 'no mechanisms of Cyrus SASL');
	$c->assert_log(0, qr/LOG:  Starting SASL negotiation:.*no mechanism available/, 'the log says so');
	wait_until { $c->zk_session->{state} eq 'authentication failed' } 'the state to be shown';
	fails($c->session->try("SELECT zk_lock('/s/c')"), '42501', 'its sessions cannot lock', detail => qr/ZAUTHFAILED/);
	$c->stop;

  SKIP:
	{
		skip 'the library that is installed can do TLS, and perhaps SASL', 1 if Zklock::Tls->is_installed;
		my $none = Zklock::Server->new('none', zookeeper => $zk, connect => 0, conf => ["zklock.auth_file = '$file'"]);
		says($none, qr/^could not use "zklock.auth_file": ZooKeeper's client library, as it is installed here, cannot do SASL; tools\/client-library/, 'a library without SASL');
		$none->stop;
	}
};

subtest 'a ZooKeeper server without SASL' => sub {
	my $id = $a->session_id;
	rules();
	says($a, qr/^SASL with ZooKeeper fails: its servers may not have it/, 'zk_session says so');
	rules(@required);
	$_->wait_session foreach $a, $b;
	is($a->session_id, $id, 'when it is back the session goes on');
};

unlike($a->log_since(0) . $b->log_since(0), qr/S3cret|Wrong/, 'no password in the logs');
rules(@sasl);
$zk->wait_ready;
$_->wait_session foreach $a, $b;
$_->end_sessions foreach $a, $b;
Zklock::Server->assert_clean($zk, [ $a, $b ]);

# ---- Kerberos

my $kdc;
my %kerberos = (KRB5_CONFIG => "$dir/krb5.conf", KRB5_KDC_PROFILE => "$dir/kdc.conf");

sub kerberos(@command)
{
	local %ENV = (%ENV, %kerberos);
	PostgreSQL::Test::Utils::run_log([@command], '>>', "$dir/kerberos.log", '2>&1') or die slurp_file("$dir/kerberos.log");
	return;
}

sub keytab($name, $principal)
{
	kerberos('kadmin.local', '-q', "addprinc -randkey $principal");
	kerberos('kadmin.local', '-q', "ktadd -k $dir/$name $principal");
	return "$dir/$name";
}

sub start_kdc
{
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	append_to_file("$dir/krb5.conf", <<"END");
[libdefaults]
default_realm = ZK.TEST
dns_lookup_kdc = false
rdns = false
udp_preference_limit = 1
[realms]
ZK.TEST = {
	kdc = 127.0.0.1:$port
}
END
	append_to_file("$dir/kdc.conf", <<"END");
[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:$port
[realms]
ZK.TEST = {
	database_name = $dir/principal
	key_stash_file = $dir/stash
}
END
	kerberos(qw(kdb5_util create -s -r ZK.TEST -P master));
	local %ENV = (%ENV, %kerberos);
	$kdc = Zklock::Process->new(name => 'kdc', argv => [qw(krb5kdc -n)]);
	wait_until { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) } 'the Kerberos server';
	return;
}

subtest 'GSSAPI' => sub {
	local $ENV{PATH} = "$ENV{PATH}:/usr/sbin";
	plan skip_all => 'there is no Kerberos server' unless -x '/usr/sbin/krb5kdc' && -x '/usr/sbin/kadmin.local';
	start_kdc();
	my $server_keys = keytab('zookeeper.keytab', 'zookeeper/localhost');
	my $gssapi = Zklock::ZooKeeper->standalone(
		request_log => 1,
		java => [
			$required[0], $required[-1], "-Djava.security.krb5.conf=$dir/krb5.conf",
			jaas('gssapi.conf', qq(com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true
				keyTab="$server_keys" principal="zookeeper/localhost")) ]);
	secret($own, "sasl:mechanism=GSSAPI,host=localhost\n");
	my $c = Zklock::Server->new(
		'gssapi',
		zookeeper   => $gssapi,
		connect     => 0,
		conf        => [ "zklock.auth_file = '$own'", q(zklock.acl = 'creator'), q(zklock.session_timeout = '40s') ],
		environment => { %{ Zklock::Tls->library }, %kerberos, KRB5_CLIENT_KTNAME => "$dir/client.keytab", KRB5CCNAME => "FILE:$dir/tickets" });
	says($c, qr/^Starting SASL negotiation:.*GSSAPI/, 'without credentials for Kerberos it says so');
	fails($c->session->try("SELECT zk_lock('/s/c')"), '42501', 'and cannot lock', detail => qr/ZAUTHFAILED/);

	# One that does not answer: whoever waits for it, the worker does not.
	$kdc->pause;
	keytab('client.keytab', 'zklock');
	my $mark = $gssapi->mark;
	wait_until { $gssapi->requests($mark)->{createSession} } 'a session, after which the library waits for Kerberos';
	$c->set_conf('zklock.auth_file' => '');
	says($c, qr/^authentication failed: ZooKeeper demands credentials/, 'while Kerberos does not answer, the worker takes up a setting');
	$c->set_conf('zklock.auth_file' => $own);
	$kdc->resume;

	$c->wait_session;
	my $id = $c->session_id;
	hold($c, 'kerberized', '/s/c');
	$gssapi->restart;
	$c->wait_session;
	is($c->session_id, $id, 'with credentials it connects, and again');
	is($s{kerberized}->query("SELECT zk_unlock('/s/c')"), 't', 'with its lock');
	$c->stop;
};

done_testing;
