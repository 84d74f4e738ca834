# Copyright (c) 2026, zklock contributors
#
# Clean systems made by debootstrap, for scripts that source this file: debian/tools/check-packages
# and tools/matrix. Needs root, and $trees, the directory where they are.
#
#   make_tree SUITE            unpacks a clean one as $tree; the first time it is made, from where
#                              debootstrap gets that release by itself, and Ubuntu's inside a clean
#                              Debian 13, which knows how, and Ubuntu's keys
#   in_tree COMMAND ...        runs there, with processes and mounts of its own that end with it

in_tree() {
	unshare --mount --pid --fork sh -c '
		mount -t proc proc "$0/proc" && mount -t tmpfs -o mode=1777 tmpfs "$0/dev/shm" &&
			mkdir -p "$0/dev/pts" && mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$0/dev/pts" &&
			exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
				DEBIAN_FRONTEND=noninteractive NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt "$@"
	' "$tree" "$@"
}

bootstrap() {
	case $1 in
	noble)
		make_tree trixie &&
			in_tree apt-get -q -y install --no-install-recommends debootstrap ubuntu-keyring &&
			in_tree debootstrap --variant=minbase --include=ca-certificates "$1" /made &&
			mv "$tree" "$tree.maker" && mv "$tree.maker/made" "$tree" && rm -rf "$tree.maker"
		;;
	*)
		rm -rf "$tree"
		debootstrap --variant=minbase --include=ca-certificates "$1" "$tree"
		;;
	esac
}

make_tree() {
	[ "$(id -u)" = 0 ] || {
		echo "only root can make a system" >&2
		exit 1
	}
	mkdir -p "$trees"
	if [ ! -f "$trees/$1.tar" ]; then
		local mirror
		echo "making a clean system, $1"
		bootstrap "$1" >"$trees/$1.log" 2>&1 || {
			tail -n 20 "$trees/$1.log" >&2
			return 1
		}
		mirror=$(awk '$1 == "deb" { print $2; exit }' "$tree/etc/apt/sources.list")
		case $(. "$tree/etc/os-release" && echo "$ID") in
		ubuntu) printf 'deb %s %s main universe\n' "$mirror" "$1" "$mirror" "$1-updates" ;;
		*)
			echo "deb $mirror $1 main"
			[ "$1" = testing ] || echo "deb $mirror-security $1-security main"
			;;
		esac >"$tree/etc/apt/sources.list"
		# A mirror that stands still is good enough to test with.
		echo 'Acquire::Check-Valid-Until "false";' >"$tree/etc/apt/apt.conf.d/zklock"
		in_tree apt-get -q -y update >>"$trees/$1.log" 2>&1
		in_tree apt-get clean
		tar -cf "$trees/$1.tar.new" -C "$tree" .
		mv "$trees/$1.tar.new" "$trees/$1.tar"
	fi
	rm -rf "$tree"
	mkdir -p "$tree"
	tar -xf "$trees/$1.tar" -C "$tree"
	# Authorities that this machine trusts, such as that of a proxy, are trusted there, too.
	[ ! -d /usr/local/share/ca-certificates ] || cp -R /usr/local/share/ca-certificates "$tree/usr/local/share/"
	in_tree update-ca-certificates >>"$trees/$1.log" 2>&1
}
