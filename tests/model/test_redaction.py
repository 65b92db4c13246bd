"""Secrets in command lines."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.model.redaction import MASK, redact, redact_line


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["x", "--password=hunter2"], ["x", "--password=***"]),
        (["x", "--password", "hunter2", "y"], ["x", "--password", "***", "y"]),
        (["x", "--password", "--verbose"], ["x", "--password", "--verbose"]),
        (["x", "-password", "-hunter2"], ["x", "-password", "***"]),
        (["x", "--db-passwd=a b"], ["x", "--db-passwd=***"]),
        (["x", "--api-key", "k", "--API_KEY=k"], ["x", "--api-key", "***", "--API_KEY=***"]),
        (["x", "--apikey=k"], ["x", "--apikey=***"]),
        (["x", "--aws-secret-access-key=k"], ["x", "--aws-secret-access-key=***"]),
        (["x", "--private-key=k", "--client-secret", "k"], ["x", "--private-key=***", "--client-secret", "***"]),
        (["env", "SECRET=s", "DB_PASSWORD=s", "java"], ["env", "SECRET=***", "DB_PASSWORD=***", "java"]),
        (["env", "PGPASSWORD=s"], ["env", "PGPASSWORD=***"]),
        (["java", "-Djavax.net.ssl.keyStorePassword=s"], ["java", "-Djavax.net.ssl.keyStorePassword=***"]),
        (["x", "https://me:s3cret@host/p"], ["x", "https://me:***@host/p"]),
        (["x", "--url=postgres://me:p@ss@host:5432/db"], ["x", "--url=postgres://me:***@host:5432/db"]),
        (["x", "redis://:s3cret@host"], ["x", "redis://:***@host"]),
        (["curl", "-H", "Authorization: Bearer abc.def"], ["curl", "-H", "Authorization: Bearer ***"]),
        (["curl", "-H", "authorization: Basic abc=="], ["curl", "-H", "authorization: Basic ***"]),
        (["curl", "-H", "X-Api-Key: abc"], ["curl", "-H", "X-Api-Key:***"]),
        (["curl", "http://h/?a=1&token=abc&b=2"], ["curl", "http://h/?a=1&token=***&b=2"]),
        (["sh", "-c", "run --token abc --x; PASSWORD='a b' y"], ["sh", "-c", "run --token *** --x; PASSWORD=*** y"]),
        (["mysql", "-ps3cret", "db"], ["mysql", "-p***", "db"]),
        (["mysql", "-p", "db"], ["mysql", "-p", "db"]),
        (["/usr/bin/sshpass", "-p", "s3cret", "ssh"], ["/usr/bin/sshpass", "-p", "***", "ssh"]),
        (["redis-cli", "-a", "s3cret"], ["redis-cli", "-a", "***"]),
    ],
)  # fmt: skip
def test_secrets_are_replaced(args, expected):
    assert redact(args) == expected


@pytest.mark.parametrize(
    "args",
    [
        ["ssh", "-p", "22", "host"],
        ["mkdir", "-p", "/a/b"],
        ["x", "--password-file=/etc/p", "--token-ttl=5m", "--tokenizer", "bpe", "--key=value", "--keyboard=us"],
        ["kubelet", "--config=/var/lib/kubelet/config.yaml", "--node-ip=10.0.0.1"],
        ["java", "-Xmx4g", "-cp", "/a:/b", "com.example.TokenServer"],
        ["https://host:8443/path", "git@host:x/y", "a:b@c"],
        ["secretary", "--monkey", "1", "--no-password", "db", "PWD=/root"],
        [],
    ],
)
def test_what_is_no_secret_stays(args):
    assert redact(args) == args


def test_a_line():
    assert redact_line("/bin/x --token abc --n 3 https://a:b@c/") == "/bin/x --token *** --n 3 https://a:***@c/"


SECRET = st.from_regex(re.compile(r"[A-Za-z0-9]{12,40}"), fullmatch=True)
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
FORMS = st.sampled_from(
    ["--password={}", "--db-token={}", "API_KEY={}", "https://u:{}@h/", "Authorization: Bearer {}", "?x=1&secret={}"]
)


@given(st.lists(PLAIN, max_size=4), FORMS, SECRET, st.lists(PLAIN, max_size=4))
def test_no_secret_is_left_whatever_is_around_it(before, form, secret, after):
    kept = redact(["program", *before, form.format(secret), *after])
    assert not any(secret in arg for arg in kept[len(before) + 1 :][:1])


@given(st.lists(PLAIN, max_size=8))
def test_the_number_of_arguments_stays_and_twice_is_once(args):
    once = redact(args)
    assert len(once) == len(args)
    assert redact(once) == once
    assert MASK == "***"
