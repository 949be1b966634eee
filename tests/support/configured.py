"""Secrets as files of configuration hold them, strong ones and ones that only their place gives away."""

from tests.support.planted import Planted

STRONG, WEAK = "Xk3vQ9wLm2Zt7RbP", "hunter2x"
CONFIGURED = [
    Planted(name, (WEAK if "{WEAK}" in text else STRONG,), text.format(STRONG=STRONG, WEAK=WEAK))
    for name, text in {
        "xml-element": "<password>{STRONG}</password>",
        "xml-element-weak": "    <dbPassword>{WEAK}</dbPassword>",
        "xml-element-open": "<ns:api-key> {STRONG}",
        "xml-element-cdata": "<secret><![CDATA[{WEAK}]]></secret>",
        "xml-element-attributes": '<token scope="all" ttl="5">{STRONG}</token>',
        "xml-element-attributes-cdata": '<password plain="true"><![CDATA[{STRONG}]]></password>',
        "xml-element-escaped": '"<a>\\n <password>\\n  {WEAK}\\n </password>\\n</a>"',
        "xml-element-cut": '["<password>{STRONG}", "<b>"]',
        "xml-attribute": '<datasource user="app" password="{WEAK}" pool="5"/>',
        "xml-attribute-own-line": '      password="{WEAK}"/>',
        "xml-property": '<property name="db.password" value="{WEAK}"/>',
        "xml-property-key": "<add key='ApiKey'  value = '{STRONG}' />",
        "xml-property-text": '<entry key="db.password">{STRONG}</entry>',
        "xml-name-and-value": "<name>db.password</name> <value>{WEAK}</value>",
        "pgpass": "db.internal:5432:app:ada:{WEAK}",
        "pgpass-any": "*:*:*:ada:{WEAK}",
        "pgpass-other-port": "10.0.0.7:15999:app:ada:{STRONG}",
        "rails-key-base": "  secret_key_base: {STRONG}",
        "rails-key-base-env": "SECRET_KEY_BASE={WEAK}",
        "encryption-key-base": "encryption_key_base = '{STRONG}'",
        "password-salt": "password_salt: {STRONG}",
        "password-salt-camel": '"passwordSalt": "{STRONG}",',
        "token-of-a-stage": "API_TOKEN_PRODUCTION={WEAK}",
        "two-qualifiers": "secret_key_base_staging: {STRONG}",
    }.items()
] + [
    Planted(
        "lines-in-quotes",
        (STRONG, "q8Zr#mW2vT", WEAK),
        f'SIGNING_SECRET="{STRONG}\nq8Zr#mW2vT\n{WEAK}"\nDEBUG=1',
    ),
    Planted("lines-in-single-quotes", (STRONG,), f"export DB_PASSWORD='\n\n{STRONG}\n'"),
]
