# Copyright (c) 2026, zklock contributors

=pod

=head1 NAME

Zklock::Monitoring - sql_exporter and Prometheus, as in the directory monitoring

=head1 SYNOPSIS

  my $exporter   = Zklock::Monitoring->exporter($server, 'monitor');
  my $prometheus = Zklock::Monitoring->prometheus($exporter);
  $prometheus->wait_value('sql_zklock_locks{state="held", col="count"}', 1);
  $prometheus->wait_alert('ZklockLockLost');            # until it fires
  $prometheus->wait_no_alert('ZklockLockLost');
  my @series = $prometheus->query('up');                # { metric => {...}, value => ... }

The server listens on 127.0.0.1 (listen_addresses), as the exporter's label "host" is the name that it connects to.
Both are Debian's programs, run with this project's files: the exporter with its own connection,
and a second instead of 15 between two looks. C<installed> tells whether they are there.

=cut

package Zklock::Monitoring;

use v5.36;

use Carp;
use File::Basename qw(dirname);
use HTTP::Tiny;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Zklock::Process;
use Zklock::Util qw(wait_until tail on_failure);

my $files = dirname(__FILE__) . '/../../../monitoring';
my $http  = HTTP::Tiny->new(timeout => 10);

sub installed { return !grep { !-x "/usr/bin/$_" } qw(prometheus promtool prometheus-sql-exporter); }

sub _start($class, $name, $ready, @argv)
{
	my $log  = "$PostgreSQL::Test::Utils::log_path/$name.log";
	my $self = bless { url => $ready =~ s{(:\d+)/.*}{$1}r }, $class;
	$self->{process} = Zklock::Process->new(name => $name, log => $log, argv => \@argv);
	on_failure($name, sub { return tail($log, 20); });
	wait_until { $http->get($ready)->{success} } "$name to serve $ready";
	return $self;
}

sub exporter($class, $server, $user)
{
	my $directory = PostgreSQL::Test::Utils::tempdir('exporter');
	my $config    = slurp_file("$files/sql_exporter.yml");
	my $url       = sprintf('postgres://%s@127.0.0.1:%d/postgres?sslmode=disable', $user, $server->port);
	$config =~ s/^  - postgres:.*$/  - '$url'/m or croak 'no connection in sql_exporter.yml';
	$config =~ s/^  interval: .*$/  interval: 1s/m or croak 'no interval in sql_exporter.yml';
	append_to_file("$directory/exporter.yml", $config);
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	return $class->_start('exporter', "http://127.0.0.1:$port/metrics",
		'prometheus-sql-exporter', '-config.file', "$directory/exporter.yml", '-web.listen-address', "127.0.0.1:$port");
}

sub prometheus($class, $exporter)
{
	my $directory = PostgreSQL::Test::Utils::tempdir('prometheus');
	my ($target)  = $exporter->{url} =~ m{//(.*)};
	append_to_file("$directory/alerts.yml", slurp_file("$files/alerts.yml"));
	append_to_file("$directory/prometheus.yml", <<"END");
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [ alerts.yml ]
scrape_configs:
- job_name: sql
  static_configs:
  - targets: [ '$target' ]
END
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	return $class->_start('prometheus', "http://127.0.0.1:$port/-/ready",
		'prometheus', "--config.file=$directory/prometheus.yml", "--storage.tsdb.path=$directory/data",
		"--web.listen-address=127.0.0.1:$port");
}

sub _get($self, $path, %parameters)
{
	my $response = $http->get("$self->{url}/api/v1/$path?" . $http->www_form_urlencode(\%parameters));
	my $answer = decode_json($response->{content});
	croak "$path @{[ %parameters ]}: $answer->{error}" unless $answer->{status} eq 'success';
	return $answer->{data};
}

sub query($self, $expression)
{
	return map { { metric => $_->{metric}, value => $_->{value}[1] } } @{ $self->_get('query', query => $expression)->{result} };
}

sub wait_value($self, $expression, $value)
{
	my @series;
	return wait_until { @series = $self->query($expression); @series == 1 && $series[0]{value} == $value }
	sub { "$expression to be $value; it is " . join(', ', map { $_->{value} } @series) };
}

sub firing($self)
{
	return map { $_->{labels}{alertname} => $_ } grep { $_->{state} eq 'firing' } @{ $self->_get('alerts')->{alerts} };
}

sub wait_alert($self, $name)
{
	return wait_until { my %firing = $self->firing; $firing{$name} } "alert $name to fire";
}

sub wait_no_alert($self, $name)
{
	return wait_until { my %firing = $self->firing; !$firing{$name} } "alert $name to end";
}

1;
