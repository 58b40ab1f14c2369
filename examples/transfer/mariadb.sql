-- What MariaDB has. InnoDB, as other engines take no part in transactions.
CREATE TABLE account (
    id varchar(40) PRIMARY KEY,
    balance bigint NOT NULL CHECK (balance >= 0)
) ENGINE = InnoDB;
INSERT INTO account VALUES ('bob', 1000);
