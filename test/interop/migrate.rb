# Copyright (c) 2026, zklock contributors
#
# migrate.rb DIRECTORY
#
# Runs the migrations in a directory as "rake db:migrate" does, with ActiveRecord as it is. The variables of libpq name
# the database.

require 'logger'
require 'active_record'

ActiveRecord::Base.establish_connection(
  adapter: 'postgresql', host: ENV['PGHOST'], port: ENV['PGPORT'], username: ENV['PGUSER'], database: ENV['PGDATABASE']
)
arguments = [ARGV[0]]
arguments << ActiveRecord::SchemaMigration if ActiveRecord.version < Gem::Version.new('7.1')
ActiveRecord::MigrationContext.new(*arguments).migrate
