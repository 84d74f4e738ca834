# Copyright (c) 2026, zklock contributors
#
# Names that zklock.so exports and needs. All libraries that PostgreSQL loads share one space of
# names, so a function that is exported by mistake may be called in place of another
# library's, or another's in place of ours, as it was with libevent's, when an extension used that.

use Zklock::Test;
use PostgreSQL::Test::Utils;

sub pg_config { chomp(my $value = `pg_config --$_[0]`); return $value; }

my $stage   = $ENV{ZKLOCK_STAGE} || '';
my $library = $stage . pg_config('pkglibdir') . '/zklock.so';

subtest 'zklock.so exports what PostgreSQL looks up and nothing else' => sub {
	my %expected = map { $_ => 1 } qw(Pg_magic_func _PG_init zklock_worker_main);
	foreach my $script (glob $stage . pg_config('sharedir') . '/extension/zklock*--*.sql')
	{
		my $sql = slurp_file($script);
		$expected{$_} = $expected{"pg_finfo_$_"} = 1 foreach $sql =~ /'MODULE_PATHNAME',\s*'(\w+)'/g;
	}
	cmp_ok(keys %expected, '>', 3, 'the SQL scripts name functions');
	my @exported = map { (split)[-1] } split /\n/, `nm -D --defined-only '$library'`;

	# What the linker or a sanitizer adds bears names that are reserved for them; gcov's does not.
	@exported = grep { !/^_(_|init$|fini$|edata$|end$)|^mangle_path$/ } @exported;
	is_deeply([ sort @exported ], [ sort keys %expected ], 'the names are these');
};

subtest 'OpenSSL and Cyrus SASL need not be there' => sub {
	my @needed = grep { /\b(?:SSL|TLS|X509|EVP|PEM|ERR|BIO)_\w+|\bsasl_\w+|zookeeper_init_(?:ssl|sasl)/ } split /\n/, `nm -D --undefined-only '$library'`;
	cmp_ok(@needed, '>', 0, 'zklock.so uses them');
	is_deeply([ grep { !/^\s*w / } @needed ], [], 'by weak symbols alone');
};

done_testing;
