# Copyright (c) 2026, zklock contributors
#
# tools/install-deps on systems that have too old a client library of ZooKeeper: it refuses
# at once, in one line, and installs nothing.

use Zklock::Test;
use PostgreSQL::Test::Utils;

# One stand-in for what tells about packages, and for what installs them.
my $bin = PostgreSQL::Test::Utils::tempdir();
my $log = "$bin/apt-get.log";
append_to_file("$bin/sudo", <<"END");
#!/bin/sh
case "\${0##*/} \$*" in
sudo*) exec "\$@" ;;
apt-get*) echo "\$*" >>$log ;;
'apt-cache policy libzookeeper-mt-dev') echo "  Candidate: \${CANDIDATE:-\$INSTALLED}" ;;
'apt-cache depends postgresql') echo '  Depends: postgresql-15' ;;
dpkg-query*Status*libzookeeper-mt-dev) echo \${INSTALLED:+installed} ;;
dpkg-query*Version*libzookeeper-mt-dev) echo \$INSTALLED ;;
esac
END
chmod 0755, "$bin/sudo";
symlink 'sudo', "$bin/$_" foreach qw(apt-get apt-cache dpkg-query);

# Runs install-deps where the package is INSTALLED in a version, or to be had, as CANDIDATE.
sub install_deps($arguments, %version)
{
	unlink $log;
	local %ENV = (%ENV, %version, PATH => "$bin:$ENV{PATH}");
	my ($out, $err);
	my $ok = IPC::Run::run([ 'sh', 'tools/install-deps', @$arguments ], '>', \$out, '2>', \$err);
	return ($ok, $out, $err, -e $log ? slurp_file($log) : '');
}

my $refusal = qr/\Ainstall-deps: zklock needs ZooKeeper's C client library 3\.7 or later, .* is \Q3.4.13-6ubuntu4\E here\n\z/;

foreach my $arguments ([], [qw(build demo)], [qw(--check build)])
{
	foreach my $state (qw(CANDIDATE INSTALLED))
	{
		subtest "an old library, $state; install-deps @$arguments" => sub {
			my ($ok, $out, $err, $called) = install_deps($arguments, $state => '3.4.13-6ubuntu4');
			ok(!$ok, 'it fails');
			like($err, $refusal, 'in one line, which says why');
			is($called, '', 'and installs nothing');
			is($out, '', 'nor does it say more');
		};
	}
}

foreach my $version ('3.7.0-1', '3.8.0-11+deb12u2', '1:3.10.0-1')
{
	subtest "version $version is good enough" => sub {
		my ($ok, $out, $err, $called) = install_deps([qw(build)], CANDIDATE => $version);
		is($err =~ s/^install-deps: installing.*\n//r, '', 'it does not complain');
		like($called, qr/ install .*\blibzookeeper-mt-dev\b/, 'it installs it');
	};
}

subtest 'what does not build zklock does not mind' => sub {
	my (undef, undef, $err) = install_deps([qw(--check demo)], CANDIDATE => '3.4.13-6ubuntu4');
	is($err, '', 'it does not complain');
};

done_testing;
