"""Planted credentials, none of which opens anything, and texts that hold none."""

from typing import Final

_ALNUM: Final = "k3Jx9QmT7vBz2LpR8sWd4NfY6hCg1XaE5uZoViMbKtSy0DqPwHnGrFlUjOcIeAk3Jx9QmT7vBz2L"
_HEX: Final = "9f3b7c1e5a0d8246f1c3e7b9a5d20468bb31c0f7d94e6a825537fa01ce98d642"
_PEM: Final = "\n".join(
    f"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7{part}{_ALNUM[:12]}"
    for part in ("ab", "c1", "Zz")
)


def _an(size: int) -> str:
    return (_ALNUM * 4)[:size]


def _hex(size: int) -> str:
    return (_HEX * 3)[:size]


# Put together here, so that nobody who looks for leaked credentials takes this file for one.
BY_FORM: Final[dict[str, str]] = {
    "aws access key": "AKI" + "A" + "Q3EGRTYW2LPZXV7M",
    "aws temporary key": "ASI" + "A" + "Q3EGRTYW2LPZXV7M",
    "github classic": "ghp" + "_" + _an(36),
    "github oauth": "gho" + "_" + _an(36),
    "github server": "ghs" + "_" + _an(36),
    "github fine": "github" + "_pat_11AAAAAAA0" + _an(40) + "_" + _an(20),
    "gitlab": "glp" + "at-" + _an(20),
    "gitlab trigger": "glp" + "tt-" + _hex(40),
    "slack bot": "xox" + "b-123456789012-1234567890123-" + _an(24),
    "slack user": "xox" + "p-123456789012-1234567890123-" + _hex(32),
    "slack app": "xap" + "p-1-A01234567-1234567890123-" + _hex(64),
    "telegram": "123456789" + ":AA" + _an(33),
    "discord bot": "MTE" + _an(21) + ".G" + _an(5) + "." + _an(38),
    "stripe": "sk" + "_live_" + _an(24),
    "stripe restricted": "rk" + "_live_" + _an(24),
    "stripe webhook": "whs" + "ec_" + _an(32),
    "openai": "sk" + "-" + _an(48),
    "openai project": "sk" + "-proj-" + _an(40) + "_" + _an(20),
    "anthropic": "sk" + "-ant-api03-" + _an(60) + "-" + _an(24) + "AA",
    "npm": "npm" + "_" + _an(36),
    "pypi": "pyp" + "i-AgEIcHlwaS5vcmc" + _an(80),
    "sendgrid": "SG" + "." + _an(22) + "." + _an(43),
    "twilio": "SK" + _hex(32),
    "google api": "AIz" + "a" + _an(35),
    "google oauth": "ya2" + "9." + _an(60),
    "google client": "GOC" + "SPX-" + _an(28),
    "azure client": "abC" + "8Q~" + _an(34),
    "hugging face": "hf" + "_" + _an(34),
    "digitalocean": "dop" + "_v1_" + _hex(64),
    "vault": "hvs" + "." + _an(90),
    "docker hub": "dck" + "r_pat_" + _an(27),
    "databricks": "dap" + "i" + _hex(32),
    "shopify": "shp" + "at_" + _hex(32),
    "mailgun": "key" + "-" + _hex(32),
    "age": "AGE" + "-SECRET-KEY-1" + "Q3EGRTYW2LPZXV7M" * 3 + "QQQQQQQQQQ",
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0." + _an(43),
}  # fmt: skip
"""Known by their own form, wherever they stand."""

_RANDOM: Final = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY"

IN_PLACE: Final[dict[str, tuple[str, str]]] = {
    "env": ("export AWS_SECRET_ACCESS_KEY={} && aws s3 rm s3://prod-bucket/x", _RANDOM),
    "env quoted": ('DB_PASSWORD="{}" ./run.sh', "hunter2"),
    "env session": ("AWS_SESSION_TOKEN={}", _an(120) + "=="),
    "env base": ("SECRET_KEY_BASE={} rails s", _hex(64)),
    "dotenv": ("A=1\nSTRIPE_KEY=x\nAPP_API_KEY={}\nB=2", _an(20)),
    "pg": ("PGPASSWORD={} psql -h db.internal -c 'select 1'", "s3cretpw"),
    "json": ('{{"user": "ada", "password": "{}"}}', "Tr0ub4dor&3"[:9]),
    "json camel": ('{{"accessToken":"{}","expiresIn":3600}}', _an(32)),
    "json escaped": ('{{\\"clientSecret\\": \\"{}\\"}}', _an(32)),
    "yaml": ("db:\n  user: ada\n  password: {}\n  host: db.internal\n", "hunter2x"),
    "yaml quoted": ("api_key: '{}'", _an(24)),
    "toml": ('[auth]\ntoken = "{}"', _an(24)),
    "ini": ("[default]\naws_secret_access_key = {}", _RANDOM),
    "python": ('client = Client(api_key="{}")', _an(24)),
    "query": ("curl 'https://api.example.com/v1/x?id=7&access_token={}&v=2'", _an(24)),
    "sas": ("https://a.blob.core.windows.net/c/f?sv=2022&sig={}&se=x", _an(40) + "%3D"),
    "form": ("curl -d 'user=ada&password={}' https://h.example/login", "hunter2"),
    "flag": ("deploy --token {} --region eu-west-1", _an(20)),
    "flag equals": ("mysqldump --password={} shop > /tmp/x.sql", "hunter2"),
    "flag api key": ("tool --api-key={} run", _an(20)),
    "bearer": ("curl -H 'Authorization: Bearer {}' https://h.example/x", _an(30)),
    "basic": ("curl -H 'Authorization: Basic {}' https://h.example/x", "YWRhOmh1bnRlcjI="),
    "raw header": ("Authorization: {}", _an(30)),
    "token header": ("curl -H 'Authorization: token {}' https://h.example", _hex(40)),
    "x header": ("curl -H 'X-Api-Key: {}' https://h.example/x", _an(24)),
    "private token": ("curl -H 'PRIVATE-TOKEN: {}' https://git.example/api", _an(20)),
    "header json": ('headers = {{"Authorization": "Bearer {}"}}', _an(30)),
    "login": ("curl -u ada:{} https://h.example/x", "hunter2"),
    "login joined": ("curl -sS --user=ada:{} https://h.example/x", "hunter2"),
    "cookie": ("curl -H 'Cookie: theme=dark; sessionid={}' https://h.example", _an(26)),
    "cookie flag": ("curl -b 'sid={}' https://h.example", _an(26)),
    "set-cookie": ("Set-Cookie: sid={}; Path=/; HttpOnly", _an(26)),
    "postgres": ("psql postgres://ada:{}@db.internal:5432/shop", "hunter2"),
    "redis": ("redis://:{}@cache.internal:6379/0", "hunter2"),
    "mongodb": ("mongodb+srv://ada:{}@cluster0.example.net/x", "p@ss"),
    "amqp": ("amqps://ada:{}@mq.internal", "hunter2"),
    "https login": ("git clone https://x-access-token:{}@git.example/o/r.git", _an(40)),
    "azure storage": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};Suffix=x", _an(86) + "==",
    ),
    "odbc": ("Server=db;Database=shop;Uid=ada;Pwd={};", "hunter2"),
    "kubernetes": ("env:\n- name: DB_PASSWORD\n  value: {}\n", "hunter2x"),
    "npmrc": ("//registry.example.com/:_authToken={}", _an(30)),
    "netrc": ("machine h.example login ada password {}", "hunter2"),
    "sshpass": ("sshpass -p {} ssh ada@h.example uptime", "hunter2"),
    "mysql": ("mysql -u root -p{} shop", "hunter2"),
    "docker login": ("docker login -u ada -p {} registry.example.com", "hunter2"),
    "redis-cli": ("redis-cli -h cache.internal -a {} ping", "hunter2"),
    "openssl": ("openssl rsa -in k.pem -passin pass:{}", "hunter2"),
    "configure": ("aws configure set aws_secret_access_key {}", _RANDOM),
    "xml": ("<password>{}</password>", "hunter2"),
    "slack hook": ("curl https://hooks.slack.com/services/{}", "T0000000/B0000000/" + _an(24)),
    "discord hook": ("https://discord.com/api/webhooks/123456789012345678/{}", _an(60)),
    "telegram url": ("https://api.telegram.org/bot{}/getMe", "123456789" + ":AA" + _an(33)),
    "sql": ("ALTER USER ada WITH PASSWORD '{}';", "hunter2"),
}  # fmt: skip
"""Known by what stands beside them: the text with `{}` for the credential, and that."""

PRIVATE_KEY: Final = "\n".join(
    (f"-----BEGIN {'RSA PRIVATE'} KEY-----", _PEM, "q1==", f"-----END {'RSA PRIVATE'} KEY-----")
)

ORDINARY: Final[tuple[str, ...]] = (
    "git show 9f3b7c1e5a0d8246f1c3e7b9a5d20468bb31c0f7",
    "git cherry-pick 9f3b7c1^..5a0d824 && git push --force-with-lease origin main",
    "commit: 9f3b7c1e5a0d8246f1c3e7b9a5d20468bb31c0f7",
    "docker pull registry.example.com/app@sha256:" + _HEX,
    "550e8400-e29b-41d4-a716-446655440000",
    "request_id=550e8400-e29b-41d4-a716-446655440000 status=200",
    "cat /var/lib/app/uploads/TWFuIGlzIGRpc3Rpbmd1aXNoZWQgbm90IG9ubHk.bin",
    "rm -rf /srv/www/releases/20261201093000/node_modules/.cache/babel-loader",
    "cp build/static/js/main.8f3b7c1e5a0d8246.chunk.js /srv/www/static/js/",
    "curl -fsSL https://get.example.com/install.sh | sh -s -- --version 1.2.3",
    "curl 'https://api.example.com/v1/items?page=2&per_page=100&sort=created_at'",
    "https://github.com/owner/repo/commit/9f3b7c1e5a0d8246f1c3e7b9a5d20468bb31c0f7",
    "https://user@example.com/path and ssh://git@git.example:2222/o/r.git",
    "scp -i ~/.ssh/id_ed25519 ada@h.example:/etc/hosts .",
    "ssh-keygen -t ed25519 -f ~/.ssh/deploy_key -N ''",
    "export PATH=/usr/local/bin:/usr/bin:/bin KEYMAP=us LANG=C.UTF-8",
    "password=$(cat /run/secrets/db) && ./migrate",
    "TOKEN=$GITHUB_TOKEN make release",
    'export API_KEY="${API_KEY:?not set}"',
    "mysql -h db -u root -p shop",
    "docker run --rm -u 1000:1000 -v $PWD:/w -w /w node:20 npm ci",
    "kubectl create secret generic db --from-file=password=./pw.txt",
    "kubectl get secret my-registry-credentials -o yaml",
    "docker build --secret id=npmrc,src=$HOME/.npmrc .",
    "vault kv get -field=password secret/prod/db",
    "op read op://prod/db/password",
    "gh auth login --with-token < token.txt",
    "echo 'Please enter your password: ' && read -s password",
    "the password: required, the token: optional",
    "Basic understanding of authentication_mechanisms; bearer authentication_mechanisms",
    "Authorization: Bearer $TOKEN",
    "-H 'Authorization: Bearer <your-token>'",
    "token = os.environ['TOKEN']",
    "password = getpass.getpass('Password: ')",
    "self.token = response.json()['access_token']",
    "def login(user: str, password: str, token: Optional[str] = None) -> Session:",
    "const apiKey = process.env.API_KEY;",
    "if token == None: raise ValueError('no token')",
    "tokens: 123456789, max_tokens=4096, total_tokens: 1234567",
    "nextPageToken=CAUQAA next_token=abcd1234efgh5678",
    "primary_key=user_account_id foreign_key: order_line_item_id",
    "key: linux-x64-node-20-9f3b7c1e",
    "cache-key: Linux-pip-" + _HEX,
    "public_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGk3Jx9QmT7vBz2LpR8sWd4NfY6hCg1XaE5uZoVi",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7k3Jx9QmT7vBz2LpR8sWd4NfY6 ada@box",
    "integrity sha512-k3Jx9QmT7vBz2LpR8sWd4NfY6hCg1XaE5uZoViMbKtSy0DqPwHnGrFlUjOcIeA==",
    "echo Y3VybCBodHRwczovL2V4YW1wbGUuY29tL2luc3RhbGwuc2ggfCBzaA== | base64 -d | sh",
    "python -c 'import secrets; print(secrets.token_hex(32))'",
    "openssl rand -hex 32 > secret.key",
    "find . -name '*.key' -o -name '*secret*' -print",
    "pass=12 fail=3 skip=0",
    "grep -rn 'password' src/ --include=*.py",
    "sk-spinner-container-fluid-wide-layout and skill-set and desk-top",
    "css .token.punctuation { color: #999; }",
    "npm install npm_package_config_port --save-dev",
    "terraform apply -var 'secret_name=prod/db/credentials' -auto-approve",
    "aws secretsmanager get-secret-value --secret-id prod/db/master",
    "2026-12-01T09:30:00.000Z INFO auth: user ada signed in from 10.0.0.7:51234",
    "ffmpeg -i in.mp4 -c:v libx264 -crf 23 out.mp4",
    "psql postgres://ada@db.internal:5432/shop -c 'drop table sessions'",
    "psql postgres://ada:$PGPASSWORD@db.internal/shop",
    "the file starts with -----BEGIN PRIVATE KEY----- and ends with the other mark",
    "sort -u names.txt | uniq -c | sort -rn | head -20",
    "chown -R www-data:www-data /srv/www && chmod -R u+rwX,go-w /srv/www",
    "make -j8 CC=clang CFLAGS='-O2 -fstack-protector-strong'",
    "secret: file=/etc/upcall/token",
    "rsync -az --delete build/ deploy@h.example:/srv/www/",
    "Session 3 of 12: keyboard shortcuts, keys and tokens",
    "monkey=banana turkey: roasted donkey = grey_animal_7",
    "author: Ada Lovelace12 authority=example.com compass: north12345",
)
"""Commands and texts as people write them; none of them holds a credential."""
