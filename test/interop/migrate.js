// Copyright (c) 2026, zklock contributors
//
// migrate.js DIRECTORY
//
// Runs the migrations in a directory with postgres-migrations as it is, from node_modules of the current directory. The
// variables of libpq name the database.

const {createRequire} = require('module');
const load = createRequire(process.cwd() + '/');
const {Client} = load('pg');
const {migrate} = load('postgres-migrations');

(async () => {
	const client = new Client();
	await client.connect();
	try {
		await migrate({client}, process.argv[2]);
	} finally {
		await client.end();
	}
})().catch((error) => {
	console.error(error.message);
	process.exitCode = 1;
});
