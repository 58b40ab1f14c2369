//! Decisions as rows of a PostgreSQL table.
