# Copyright (c) 2026, zklock contributors

=head1 NAME

Bench::Place - where ZooKeeper's servers keep their data

=head1 SYNOPSIS

  my $directory = Bench::Place::make('memory');   # or 'disk'; undef where there is none
  Bench::Place::trim($directory);

The directory is removed at the end of the program. C<trim> removes the transaction logs and
snapshots that a server needs no more: a benchmark writes gigabytes of them.

=cut

package Bench::Place;

use v5.36;

use File::Temp qw(tempdir);

# MB that three servers need, with room to spare
my $needed = 1500;

my %candidates = (
	memory => ['/dev/shm', '/run', '/tmp'],
	disk   => [ $ENV{TESTDATADIR} // (), $ENV{TMPDIR} // (), '/var/tmp', '/tmp' ]);

sub _fits($kind, $directory)
{
	return 0 unless -d $directory && -w _;
	my ($type, $blocks, $size) = split / /, `stat -f -c '%T %a %S' '$directory'`;
	return ($type eq 'tmpfs') == ($kind eq 'memory') && $blocks * $size / 1e6 >= $needed;
}

sub make($kind)
{
	my ($found) = grep { _fits($kind, $_) } @{ $candidates{$kind} };
	return $found && tempdir('zklock-bench-XXXXXX', DIR => $found, CLEANUP => 1);
}

sub trim($place)
{
	foreach my $directory (glob "$place/*/data/version-2")
	{
		foreach my $kind (qw(log snapshot))
		{
			my @files = sort { hex($b =~ s/.*\.//r) <=> hex($a =~ s/.*\.//r) } glob "$directory/$kind.*";
			unlink splice(@files, 3);
		}
	}
	return;
}

1;
