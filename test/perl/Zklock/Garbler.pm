# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Garbler - makes nonsense of a ZooKeeper server's replies

=head1 SYNOPSIS

  my $garbler = Zklock::Garbler->new(seed => 1, share => 0.1);
  my @frames = $garbler->reply($frame, 'getData', $outstanding);
  my @frames = $garbler->event($frame);
  my @frames = $garbler->handshake($frame);

Part of zk_proxy.pl. Each method takes a message with its length in front and returns what
the client is to get instead: the same, one with some bytes changed, cut out or repeated,
the message twice, or nothing. C<$outstanding> is the number of other requests that have
no answer yet.

=head1 WHAT THE CLIENT LIBRARY DOES NOT SURVIVE

The C client library (3.8; later ones are the same) takes it for granted that answers are
well formed, and some that are not end the process. Nobody but the library can mend that,
so such messages are not made; C<_survives> tells which they are:

  - an answer while no request is outstanding (assertion)
  - an answer to a multi that has more results than the request, or breaks off (assertion)
  - an answer to getData, create2, createContainer, or an event, that breaks off before its
    first string or buffer ends (an uninitialised pointer is used and freed)
  - a list that announces more children than there is memory for (null pointer)

It survives, but never connects again with the same handle, if the transaction number in a
reply's header is higher than that of any server; so these eight bytes are left alone.

=cut

package Zklock::Garbler;

use v5.36;

use constant {
	HEADER   => 16,           # xid, zxid, error
	STAT     => 68,
	ATTEMPTS => 20,
	CHILDREN => 1_000_000,    # more are not announced
};

sub new($class, %arg)
{
	srand $arg{seed};
	return bless { share => $arg{share} }, $class;
}

sub _any(@choice) { return $choice[ rand @choice ]; }

# Some bytes of a text from an offset on, changed.
sub _flip($text, $from)
{
	return $text if length $text <= $from;
	foreach (1 .. _any(1, 1, 2, 4))
	{
		my $at = $from + int rand(length($text) - $from);
		substr($text, $at, 1) = chr _any(0, 1, 0x7f, 0x80, 0xff, int rand 256, ord(substr $text, $at, 1) ^ 1 << rand 8);
	}
	return $text;
}

sub _cut($text, $from)
{
	return $text if length $text <= $from;
	my $at = $from + int rand(length($text) - $from);
	return _any(0, 1) ? substr($text, 0, $at) : substr($text, 0, $at) . substr($text, $at + 1 + int rand(length($text) - $at));
}

sub _repeat($text, $from)
{
	return $text if length $text <= $from;
	my $at = $from + int rand(length($text) - $from);
	return substr($text, 0, $at) . substr($text, $at, 1 + int rand 16) . substr($text, $at);
}

# ---- what the library makes of a message --------------------------------------

# Does a string or buffer that begins at the offset end within the message?
sub _fits($text, $at)
{
	return 0 if length $text < $at + 4;
	my $length = unpack("x$at l>", $text);
	return $length >= 0 && $length <= length($text) - $at - 4;
}

# How the results of a multi are put together, which must stay as it is.
sub _skeleton
{
	my ($text, $at) = (@_, HEADER);
	my @skeleton;
	while (length $text >= $at + 9)
	{
		my ($type, $done) = unpack("x$at l> c", $text);
		$at += 9;
		push @skeleton, $type, $done;
		return "@skeleton" if $done;
		my $size = $type == -1 ? 4 : $type == 5 ? STAT : 0;
		$size = 4 + unpack("x$at l>", $text) if $type == 1 && _fits($text, $at);
		$at += $size;
		push @skeleton, $size;
	}
	return 'broken off';
}

sub _survives($new, $old, $op)
{
	return 0 if length $new < HEADER;
	my ($xid, $error) = unpack('l> x8 l>', $new);
	return 0 if $xid == -1 || $xid == -4;
	return _skeleton($new) eq _skeleton($old) if $op eq 'multi';    # which is read in case of an error, too
	return 1 if $error != 0;
	return _fits($new, HEADER) if $op =~ /^(getData|create2|createContainer)$/;
	return length $new < HEADER + 4 || unpack('x16 l>', $new) <= CHILDREN if $op eq 'getChildren';
	return 1;
}

# ---- messages -----------------------------------------------------------------

sub reply($self, $frame, $op, $outstanding)
{
	return $frame if rand >= $self->{share};
	my $what = rand;
	return () if $what < 0.05;
	return ($frame, $frame) if $what < 0.15 && $outstanding > 0;

	my $old = substr($frame, 4);
	foreach (1 .. ATTEMPTS)
	{
		my $change = _any(\&_flip, \&_flip, \&_flip, \&_cut, \&_repeat);
		my $new =
		  rand() < 0.1
		  ? _flip(substr($old, 0, 4), 0) . substr($old, 4)
		  : substr($old, 0, 12) . $change->(substr($old, 12), _any(0, 4, 4, 4));
		return pack('N/a*', $new) if $new ne $old && _survives($new, $old, $op);
	}
	return $frame;
}

sub event($self, $frame)
{
	return $frame if rand >= $self->{share};
	my $old = substr($frame, 4);
	foreach (1 .. ATTEMPTS)
	{
		my $new = substr($old, 0, HEADER) . _flip(substr($old, HEADER), 0);
		return pack('N/a*', $new) if $new ne $old && _fits($new, HEADER + 8);
	}
	return $frame;
}

# Its length is fixed.
sub handshake($self, $frame)
{
	return $frame if rand >= $self->{share};
	return substr($frame, 0, 4) . _flip(substr($frame, 4), 0);
}

1;
