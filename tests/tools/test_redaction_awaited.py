"""Secrets whose name stands on another line, in another field or in a program's options."""

import base64
import random
import time

import pytest

from tools.redaction import PATTERN, Redactor, Stream

KEY = bytes(range(32))
VALUE = "kV9x2LmQ7pTz"
APART = [
    "<key>password</key>\n<string>%s</string>\n",
    "<name>fs.s3a.secret.key</name>\n  <value>%s</value>\n",
    "<password>\n   %s\n</password>\n",
    '<property name="db.password"\n   value="%s"/>\n',
    "password: |\n  %s\n",
    "  db_password: >-\n    %s\n  other: x\n",
    "12\t  db_password: >-\n13\t    %s\n",
    '{"name": "DB_PASSWORD", "value": "%s"}\n',
    '      {\n        "name": "DB_PASSWORD",\n        "value": "%s"\n      }\n',
    "  - name: DB_PASSWORD\n    value: %s\n",
    '    name  = "API_TOKEN"\n    value = "%s"\n',
    '{"ParameterKey": "DbPassword", "ParameterValue": "%s"}\n',
    '"db_password": {\n  "value": "%s",\n  "sensitive": true\n}\n',
    '{"name": "Authorization", "value": "Bearer %s"}\n',
    '{"name":"Cookie","value":"sid=%s; a=b"}\n',
]
GIVEN = [
    "$ mysqldump -h db -uroot -p'%s' shop > d.sql\n",
    ": 1712000000:0;mysql -uroot -p%s\n",
    "sshpass -p %s ssh joe@h\n",
    "docker login -u joe -p %s reg.io\n",
    "redis-cli -h x -a %s ping\n",
    "requirepass %s\n",
    "openssl rsa -in k -passin pass:%s\n",
    "ENV DB_PASSWORD %s\n",
    "set -x DB_PASSWORD %s\n",
    "define( 'DB_PASSWORD', '%s' );\n",
    "CREATE USER joe IDENTIFIED BY '%s';\n",
    "keytool -storepass %s -list\n",
    "jdbc:oracle:thin:scott/%s@//db:1521/X\n",
    "machine api.x.io\n  login joe\n  password %s\n",
    "| DB_PASSWORD | %s |\n",
]
ORDINARY = [
    "<key>password</key>\n<string>Enter your password here</string>\n",
    '<label for="password">\n  Password\n</label>\n',
    "token: |\n  The token that the server prints.\n  It is needed once.\n",
    '{"name": "password", "value": "required"}\n',
    '{"name": "max_token", "value": 4096}\n',
    "identified by %NL80211_ATTR_MAC on\n",
    "# include <stop_token>\n# endif1x\n",
    "  - name: DB_PASSWORD\n    valueFrom:\n      secretKeyRef:\n        key: password\n",
    '"password": {\n  "type": "string",\n  "minLength": 8\n}\n',
    "The password must have eight characters.\n",
    "token count\n",
    "mysql -h db -p shop\n",
    "    name: token\n    description: of the page\n",
    "  secret 550e8400-e29b-41d4-a716-446655440000\n",
]


@pytest.mark.parametrize("form", APART + GIVEN)
def test_the_value_is_found_and_only_it(form: str) -> None:
    text = form % VALUE
    clean = Redactor(KEY).redact(text)
    assert VALUE not in clean
    assert len(PATTERN.findall(clean)) == 1
    before, _, after = form.partition("%s")
    assert clean.startswith(before)
    assert clean.endswith(after)


@pytest.mark.parametrize("form", APART + GIVEN)
def test_a_pair_may_be_cut_anywhere(form: str) -> None:
    text = form % VALUE
    whole = Redactor(KEY).redact(text)
    for cut in range(len(text) + 1):
        stream = Stream(Redactor(KEY))
        assert stream.feed(text[:cut]) + stream.feed(text[cut:]) + stream.finish() == whole


def test_forms_one_after_another_do_not_depend_on_pieces() -> None:
    draw = random.Random(5)
    for _ in range(60):
        forms = draw.choices(APART + GIVEN + ORDINARY, k=6)
        text = "".join(form.replace("%s", VALUE) for form in forms)
        stream, shown, at = Stream(Redactor(KEY)), "", 0
        while at < len(text):
            size = draw.randint(1, 40)
            shown += stream.feed(text[at : at + size])
            at += size
        shown += stream.finish()
        byline = Stream(Redactor(KEY))
        assert shown == byline.feed(text) + byline.finish()


@pytest.mark.parametrize("text", ORDINARY)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor(KEY).redact(text) == text


def test_a_kubernetes_secret_is_found_before_its_kind_is_said() -> None:
    encoded = base64.b64encode(VALUE.encode()).decode()
    text = f"apiVersion: v1\ndata:\n  db-password: {encoded}\nkind: Secret\n"
    assert encoded not in Redactor(KEY).redact(text)


@pytest.mark.budget
@pytest.mark.parametrize(
    "unit",
    [
        "<key>password</key>\n",
        "password: |\n",
        "name: token\n",
        "mysql -p ",
        "token ",
        "<password>\n",
        "sshpass -p '",
        '"name": "token", ',
        "password: {\n",
        "| token | ",
    ],
)
def test_a_hostile_megabyte_takes_no_longer(unit: str) -> None:
    text = unit * ((1 << 20) // len(unit))
    times = []
    for _ in range(2):
        begun = time.process_time()
        Redactor(KEY).redact(text)
        times.append(time.process_time() - begun)
    assert min(times) < 2
