"""Secrets to plant: of every kind, drawn anew from a seed, each with a text in which it would be met."""

import base64
import json
import random
import string
from dataclasses import dataclass

LOWER_HEX, WORD = "0123456789abcdef", string.ascii_letters + string.digits


@dataclass(frozen=True)
class Planted:
    """`values` must never be shown; `text` is where they stand, one or several lines."""

    name: str
    values: tuple[str, ...]
    text: str


def planted(seed: int = 1) -> list[Planted]:
    """At least thirty secrets of different kinds."""
    draw = random.Random(seed)

    def some(length: int, alphabet: str = WORD) -> str:
        while True:
            value = "".join(draw.choice(alphabet) for _ in range(length))
            if any(c.isdigit() for c in value) and any(c.isalpha() for c in value):
                return value

    found: list[Planted] = []

    def plant(name: str, value: str, text: str) -> None:
        found.append(Planted(name, (value,), text.replace("@@", value)))

    plant("github", "ghp_" + some(36), "GITHUB_TOKEN=@@")
    plant("github fine-grained", "github_pat_" + some(22) + "_" + some(59), "remote: @@ was used")
    plant("gitlab", "glpat-" + some(20), "  - glab auth login --token @@")
    plant("aws key id", "AKIA" + some(16, string.ascii_uppercase + "234567"), "aws_access_key_id = @@")
    plant("aws secret", some(40, WORD + "/+"), "aws_secret_access_key = @@")
    plant("slack bot", f"xoxb-{draw.randrange(10**10, 10**11)}-{some(24)}", "slack: '@@'")
    plant(
        "slack webhook",
        f"T{some(8).upper()}/B{some(8).upper()}/{some(24)}",
        "curl https://hooks.slack.com/services/@@",
    )
    plant("stripe", "sk_live_" + some(24), 'stripe.api_key = "@@"')
    plant("openai", "sk-proj-" + some(48), "client = OpenAI(api_key='@@')")
    plant("anthropic", "sk-ant-api03-" + some(60), "export ANTHROPIC_API_KEY=@@")
    plant("huggingface", "hf_" + some(34), "login(token='@@')")
    plant("npm", "npm_" + some(36), "//registry.example.org/:_authToken=@@")
    plant("pypi", "pypi-AgEIcHlwaS5vcmc" + some(60), "password = @@")
    plant("sendgrid", f"SG.{some(22)}.{some(43)}", "mail(key='@@')")
    plant("twilio", "SK" + some(32, LOWER_HEX), "TWILIO_KEY_SID: @@")
    plant("google", "AIza" + some(35), "https://maps.example.org/api/js?key=@@&v=3")
    plant(
        "azure account",
        some(86, WORD + "+/") + "==",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=@@;EndpointSuffix=x",
    )
    plant("azure secret", f"{some(3)}8Q~{some(34)}", "secret: @@")
    plant(
        "jwt",
        ".".join(
            (
                _url64('{"alg":"HS256","typ":"JWT"}'),
                _url64('{"sub":"' + some(12) + '","admin":true}'),
                some(43),
            )
        ),
        "jwt=@@",
    )
    plant("bearer", some(40), "> Authorization: Bearer @@")
    plant(
        "basic",
        base64.b64encode(f"deploy:{some(14)}".encode()).decode(),
        "curl -H 'Authorization: Basic @@' https://x",
    )
    plant("cookie", some(32, LOWER_HEX), "< Set-Cookie: sessionid=@@; HttpOnly; Path=/")
    plant("url", some(16), "DATABASE_URL=postgres://app:@@@db.internal:5432/app")
    plant("url weak", "hunter2!" + some(3), "redis://:@@@cache:6379/0")
    plant("dotenv password", "k9#" + some(9), "DB_PASSWORD=@@")
    plant("json password", some(7) + "!" + some(7), '{"user": "ada", "password": "@@", "port": 5432}')
    plant("yaml password", some(18), "  db_password: @@")
    plant("hex api key", some(32, LOWER_HEX), "X-Api-Key: @@")
    plant("uuid secret", "-".join(some(n, LOWER_HEX) for n in (8, 4, 4, 4, 12)), "CLIENT_SECRET=@@")
    plant("netrc", some(15), "machine api.example.org login ada password @@")
    plant("curl user", some(15), "curl -u ada:@@ https://api.example.org")
    plant("traceback", some(20), "AuthError: bad login (user='ada', password='@@')")
    plant("telegram", f"{draw.randrange(10**9, 10**10)}:AA{some(33)}", "bot = Bot('@@')")
    plant("private npm basic", base64.b64encode(f"ada:{some(12)}".encode()).decode(), "_auth=@@")
    lines = [some(64, WORD + "+/") for _ in range(12)] + [some(22, WORD + "+/") + "=="]
    pem = "\n".join(("-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"))
    found.append(Planted("private key", tuple(lines), pem))
    inner = [some(64, WORD + "+/") for _ in range(8)] + [some(40, WORD + "+/") + "=="]
    body = "\n".join(("-----BEGIN PRIVATE KEY-----", *inner, "-----END PRIVATE KEY-----", ""))
    account = {
        "type": "service_account",
        "project_id": "p",
        "private_key": body,
        "client_email": "a@p.example.org",
    }
    found.append(Planted("service account", tuple(inner), json.dumps(account)))
    hidden = f"TOKEN=ghp_{some(36)}"
    encoded = base64.b64encode(hidden.encode()).decode()
    found.append(Planted("base64", (encoded,), f"echo {encoded} | base64 -d"))
    return found


def _url64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
