# Copyright (c) 2026, zklock contributors
#
# test/install-deps on systems that have too old a client library of ZooKeeper: it refuses
# at once, in one line, and installs nothing.

use Zklock::Test;
use PostgreSQL::Test::Utils;

# Stand-ins for what tells about packages, and what installs them.
my $bin = PostgreSQL::Test::Utils::tempdir();
my $log = "$bin/apt-get.log";

sub program($name, $text)
{
	unlink "$bin/$name";
	append_to_file("$bin/$name", "#!/bin/sh\n$text\n");
	chmod 0755, "$bin/$name";
	return;
}

# Runs install-deps where the package is installed in a version, or to be had.
sub install_deps($arguments, %version)
{
	my $candidate = $version{candidate} || $version{installed};
	unlink $log;
	program('apt-get', "echo \"\$*\" >>$log");
	program('sudo',    'exec "$@"');
	program('apt-cache', <<"END");
case \$* in
'policy libzookeeper-mt-dev') echo "libzookeeper-mt-dev:
  Installed: (none)
  Candidate: $candidate
  Version table:" ;;
'depends postgresql') echo '  Depends: postgresql-15' ;;
esac
END
	program('dpkg-query', <<"END");
case \$* in
*Status*libzookeeper-mt-dev) echo '@{[ $version{installed} ? 'installed' : 'not-installed' ]}' ;;
*Version*libzookeeper-mt-dev) echo '@{[ $version{installed} || '' ]}' ;;
*) echo not-installed ;;
esac
END
	local $ENV{PATH} = "$bin:$ENV{PATH}";
	my ($out, $err);
	my $ok = IPC::Run::run([ 'sh', 'test/install-deps', @$arguments ], '>', \$out, '2>', \$err);
	return ($ok, $out, $err, -e $log ? slurp_file($log) : '');
}

my $refusal = qr/\Ainstall-deps: zklock needs ZooKeeper's C client library 3\.7 or later, .* is \Q3.4.13-6ubuntu4\E here\n\z/;

foreach my $arguments ([], [qw(build demo)], [qw(--check build)])
{
	foreach my $state (qw(candidate installed))
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
		my ($ok, $out, $err, $called) = install_deps([qw(build)], candidate => $version);
		is($err =~ s/^install-deps: installing.*\n//r, '', 'it does not complain');
		like($called, qr/ install .*\blibzookeeper-mt-dev\b/, 'it installs it');
	};
}

subtest 'what does not build zklock does not mind' => sub {
	my (undef, undef, $err) = install_deps([qw(--check demo)], candidate => '3.4.13-6ubuntu4');
	is($err, '', 'it does not complain');
};

done_testing;
