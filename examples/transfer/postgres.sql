-- What PostgreSQL has. The user of [resource.checking] needs no more than rights on the tables that it is to work with.
CREATE TABLE account (
    id text PRIMARY KEY,
    balance bigint NOT NULL CHECK (balance >= 0)
);
INSERT INTO account VALUES ('ada', 1000);
