/*
 * test_share.c
 *		Unit tests of the shares in common.h.
 *
 * Copyright (c) 2026, zklock contributors
 */
#include "shared/common.h"
#include "unit.h"

int
main(void)
{
	is_int(share_of_entries(-1, 6400), 1600, "by default a session may have a quarter of the entries");
	is_int(share_of_entries(-1, 40), 16, "or 16 if that is more");
	is_int(share_of_entries(-1, 4), 4, "or all if there are fewer");
	is_int(share_of_entries(1, 6400), 1, "a setting counts");
	is_int(share_of_entries(6400, 6400), 6400, "up to all");
	is_int(share_of_entries(10000, 6400), 6400, "but not more");

	is_int(share_entries_reserved(6400), 400, "a sixteenth of the entries is reserved");
	is_int(share_entries_reserved(17), 2, "rounded up");
	is_int(share_entries_reserved(4), 1, "one of a few");
	is_int(share_entries_reserved(1), 0, "but not the only one");

	is_int(share_of_bytes(1600, 6400), PACKET_BUDGET / 4,
		   "a quarter of the entries has a quarter of the bytes");
	is_int(share_of_bytes(6400, 6400), PACKET_BUDGET, "all entries have all bytes");
	is_int(share_of_bytes(16384, 16384), PACKET_BUDGET, "however many there are");
	ok(share_of_bytes(1, 16384) >= 10 * 2 * ZKLOCK_MAX_PATH,
	   "a small share has room for ten of the longest paths below the longest chroot");
	return done_testing();
}
