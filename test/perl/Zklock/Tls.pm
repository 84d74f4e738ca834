# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Tls - authorities, certificates and keys, for tests with TLS

=head1 SYNOPSIS

  my $tls = Zklock::Tls->new;                       # an authority of its own
  $tls->certificate('client');                      # files client.pem and client.key
  $tls->certificate('old', expired => 1);
  $tls->file('ca.pem')                              # path of a file

  my $zk = Zklock::ZooKeeper->standalone(tls => $tls);
  my $a = Zklock::Server->new('a', zookeeper => 'localhost:' . $zk->tls_port, conf => [ $tls->conf('client') ],
      environment => Zklock::Tls->library);

A ZooKeeper server with C<tls> serves clients with TLS on C<tls_port>, besides those without, and
demands a certificate of the same authority; its own is for localhost, or the host that
C<new(name =E<gt> ...)> says. With C<new(client_auth =E<gt> 'none')> it asks for no certificate.

C<available> tells whether there is a client library with TLS (ZKLOCK_TLS_CLIENT), C<library> is the
environment of a database server that is to use it. C<is_installed> tells whether the one that is
installed, which servers use otherwise, can do TLS, too.

=cut

package Zklock::Tls;

use v5.36;

use DynaLoader ();
use PostgreSQL::Test::Utils;

sub available { return $ENV{ZKLOCK_TLS_CLIENT} && -x '/usr/bin/openssl'; }
sub library   { return { LD_LIBRARY_PATH => $ENV{ZKLOCK_TLS_CLIENT} }; }

sub is_installed
{
	my $library = DynaLoader::dl_load_file('libzookeeper_mt.so.2') or die DynaLoader::dl_error();
	return defined DynaLoader::dl_find_symbol($library, 'zookeeper_init_ssl');
}

sub _openssl($self, @arguments)
{
	my $log = $self->file('log');
	system("cd '$self->{directory}' && openssl @arguments >>'$log' 2>&1") == 0
	  or die "openssl @arguments failed:\n" . slurp_file($log);
	return;
}

my $authorities = 0;

sub new($class, %opt)
{
	my $number = ++$authorities;
	my $self = bless { directory => PostgreSQL::Test::Utils::tempdir("tls_$number"), client_auth => $opt{client_auth} || 'need' }, $class;
	$self->_openssl("req -x509 -newkey rsa:2048 -nodes -subj '/CN=authority $number' -keyout ca.key -out ca.pem -days 2");
	$self->certificate('server', name => $opt{name} || 'localhost');
	# As ZooKeeper wants it: key and certificate in one file
	append_to_file($self->file('server-both.pem'), slurp_file($self->file('server.key')) . slurp_file($self->file('server.pem')));
	return $self;
}

sub file($self, $name) { return "$self->{directory}/$name"; }

sub certificate($self, $file, %opt)
{
	my $name = $opt{name} || $file;
	unlink map { $self->file("$file.$_") } qw(pem key);
	$self->_openssl("req -new -newkey rsa:2048 -nodes -subj '/CN=$name' -addext 'subjectAltName = DNS:$name' "
		  . "-keyout $file.key -out $file.csr");
	# One that is valid for no days has expired a second later.
	$self->_openssl("x509 -req -CA ca.pem -CAkey ca.key -copy_extensions copy -in $file.csr -out $file.pem -days "
		  . ($opt{expired} ? 0 : 2));
	chmod 0600, $self->file("$file.key");
	return;
}

sub server_conf($self)
{
	return (
		'ssl.keyStore.location'   => $self->file('server-both.pem'),
		'ssl.keyStore.type'       => 'PEM',
		'ssl.trustStore.location' => $self->file('ca.pem'),
		'ssl.trustStore.type'     => 'PEM',
		'ssl.clientAuth'          => $self->{client_auth},
		'ssl.hostnameVerification' => 'false');
}

# Lines for postgresql.conf
sub conf($self, $file)
{
	my %settings = $self->settings($file);
	return map { "$_ = '$settings{$_}'" } sort keys %settings;
}

sub settings($self, $file)
{
	return (
		'zklock.tls_ca_file'   => $self->file('ca.pem'),
		'zklock.tls_cert_file' => $self->file("$file.pem"),
		'zklock.tls_key_file'  => $self->file("$file.key"));
}

1;
