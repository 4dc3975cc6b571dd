"""Configuration: every setting from every source, and every way to get it wrong."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from surehook.cli.config import default_file
from surehook.config import Config, load, without_password
from surehook.config.parsers import duration, in_words
from surehook.config.settings import SETTINGS, Setting
from surehook.errors import ConfigError
from surehook.model.retry import PRESETS, Policy
from surehook.model.roles import ROLES

REPOSITORY = Path(__file__).parents[2]

# For each setting two other values, as text, and what they mean.
SECRET = "do not show this to anybody at all"
OTHERS: dict[str, tuple[tuple[str, object], tuple[str, object]]] = {
    "database.url": (
        ("postgresql://a:sesame@h/d", "postgresql://a:sesame@h/d"),
        ("postgres://b@h/d", "postgres://b@h/d"),
    ),
    "database.data_dir": (("/a", Path("/a")), ("~/b", Path("~/b").expanduser())),
    "database.postgres_binaries": (("/a/bin", Path("/a/bin")), ("/b/bin", Path("/b/bin"))),
    "database.roles": (("off", False), ("true", True)),
    "database.role_secret": ((SECRET, SECRET), (SECRET * 2, SECRET * 2)),
    "database.buckets": (("4", 4), ("16", 16)),
    "database.connections": (("9", 9), ("10", 10)),
    "database.connect_timeout": (("500ms", 0.5), ("2", 2.0)),
    "database.statement_timeout": (("1m", 60.0), ("45s", 45.0)),
    "database.allow_unsafe": (("on", True), ("0", False)),
    "retry.preset": (("durable", "durable"), ("standard", "standard")),
    "retry.base_delay": (("10s", 10.0), ("1.5s", 1.5)),
    "retry.max_attempts": (("7", 7), ("1", 1)),
    "retry.max_delay": (("2h", 7200.0), ("1d", 86400.0)),
    "delivery.request_timeout": (("20s", 20.0), ("7", 7.0)),
    "delivery.allow_networks": (
        ("10.0.0.0/8, ::1/128", ("10.0.0.0/8", "::1/128")),
        ("127.0.0.1", ("127.0.0.1",)),
    ),
    "delivery.ca_file": (("/a.pem", Path("/a.pem")), ("/b.pem", Path("/b.pem"))),
    "delivery.proxy": (("http://p:1", "http://p:1"), ("http://u:x@p:2", "http://u:x@p:2")),
    "delivery.secret_overlap": (("0", 0.0), ("2h", 7200.0)),
    "delivery.encryption_key": ((SECRET, SECRET), (SECRET * 2, SECRET * 2)),
    "verification.trusted": (
        (
            "https://a.example, https://*.b.example:8443",
            ("https://a.example", "https://*.b.example:8443"),
        ),
        ("https://[::1]:9", ("https://[::1]:9",)),
    ),
    "worker.concurrency": (("1", 1), ("999", 999)),
    "worker.slow_requests": (("8", 8), ("999", 999)),
    "worker.memory": (("1048576", 1048576), ("2097152", 2097152)),
    "worker.lease_duration": (("60s", 60.0), ("90", 90.0)),
    "orchestrator.batch": (("10", 10), ("11", 11)),
    "orchestrator.open_jobs": (("10", 10), ("11", 11)),
    "orchestrator.subscription_cap": (("10", 10), ("11", 11)),
    "limits.concurrency_cap": (("32", 32), ("999", 999)),
    "limits.rate": (("1", 1), ("999", 999)),
    "limits.request_timeout": (("15s", 15.0), ("20", 20.0)),
    "limits.subscriptions": (("1", 1), ("999", 999)),
    "api.listen": (("[::1]:9", "[::1]:9"), ("0.0.0.0:80", "0.0.0.0:80")),
    "api.admin_key": ((SECRET, SECRET), (SECRET * 2, SECRET * 2)),
    "api.payload_max": (("2048", 2048), ("4096", 4096)),
    "api.batch_max": (("2048", 2048), ("4096", 4096)),
    "api.memory": (("1048576", 1048576), ("2097152", 2097152)),
    "api.connections": (("16", 16), ("99", 99)),
    "api.request_timeout": (("5s", 5.0), ("1m", 60.0)),
    "api.idle_timeout": (("5s", 5.0), ("1m", 60.0)),
    "api.answer_timeout": (("500ms", 0.5), ("1m", 60.0)),
    "api.key_failures": (("1", 1), ("99", 99)),
    "api.metrics_open": (("on", True), ("false", False)),
    "serve.processes": (("1", 1), ("64", 64)),
    "observe.listen": (("off", "off"), ("[::1]:9464", "[::1]:9464")),
    "log.level": (("debug", "debug"), ("error", "error")),
    "log.format": (("json", "json"), ("text", "text")),
}
WRONG: dict[str, tuple[object, ...]] = {
    "database.url": ("", "sqlite:///x", "localhost", 5),
    "database.data_dir": ("", 5),
    "database.postgres_binaries": ("", True),
    "database.roles": ("maybe", 2, ""),
    "database.role_secret": ("short", 5),
    "database.buckets": ("0", 257, 1.5, True, "four"),
    "database.connections": (1, 201, "x"),
    "database.connect_timeout": ("0", "301s", "soon", -1, True, "nan", "inf"),
    "database.statement_timeout": ("0.5", "2h", "1 week"),
    "database.allow_unsafe": ("yes please",),
    "retry.preset": ("forever", 1, ["standard"]),
    "retry.base_delay": ("0", "-5s", "8d"),
    "retry.max_attempts": (0, 1001, "many"),
    "retry.max_delay": ("0", "31d"),
    "delivery.request_timeout": ("0", "601s", ""),
    "delivery.allow_networks": ("10.0.0.1/8", "nowhere", 5, ["10.0.0.0/8", "x"]),
    "delivery.ca_file": ("",),
    "delivery.proxy": ("p:1", "https://p:1", "http://", "http://p/x", 5),
    "delivery.secret_overlap": ("31d", "soon"),
    "delivery.encryption_key": ("short",),
    "verification.trusted": (
        "http://a.example",
        "a.example",
        "https://a.example/",
        "https://a.example/hooks",
        "https://*",
        "https://a.*.example",
        "https://*a.example",
        "https://u@a.example",
        5,
        ["https://a.example", "*"],
    ),
    "worker.concurrency": (0, 10001),
    "worker.slow_requests": (7, 10001),
    "worker.memory": (1, "64MB"),
    "worker.lease_duration": ("0", "2h"),
    "orchestrator.batch": (0, 5001),
    "orchestrator.open_jobs": (0, 1000001),
    "orchestrator.subscription_cap": (0, 100001),
    "limits.concurrency_cap": (0, 100001),
    "limits.rate": (0, 1000001, 0.5),
    "limits.request_timeout": ("0", "601s"),
    "limits.subscriptions": (0, 1000001),
    "api.listen": ("8080", "host:", ":80", "host:99999", "host:port"),
    "api.admin_key": ("short",),
    "api.payload_max": (1023, "1MB"),
    "api.batch_max": (0, "x"),
    "api.memory": (1, "64MB"),
    "api.connections": (15, 1000001),
    "api.request_timeout": ("0", "601s"),
    "api.idle_timeout": ("0", "2h"),
    "api.answer_timeout": ("0.4", "301s"),
    "api.key_failures": (0, "x"),
    "api.metrics_open": ("maybe",),
    "serve.processes": (0, 65, "two"),
    "observe.listen": ("9464", "on", True),
    "log.level": ("loud", 1),
    "log.format": ("xml",),
}
NOTHING = Path("/dev/null")


def with_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "surehook.toml"
    file.write_text(text, encoding="utf-8")
    return file


def needed(key: str) -> dict[str, str]:
    """What else must be set so that this setting alone is judged."""
    return {"SUREHOOK_ROLES": "off"} if key == "database.url" else {}


def value(loaded: Config, key: str) -> object:
    return loaded.origins[key].value


def as_toml(key: str, text: str) -> str:
    section, name = key.split(".")
    return f'[{section}]\n{name} = "{text}"\n'


def test_this_file_knows_every_setting() -> None:
    assert set(OTHERS) == set(WRONG) == {setting.key for setting in SETTINGS}


# ── Sources ───────────────────────────────────────────────────────────────────────────────────


def test_without_any_source_every_setting_has_its_default() -> None:
    loaded = load(NOTHING, {})
    for setting in SETTINGS:
        assert value(loaded, setting.key) == setting.default
        assert loaded.origins[setting.key].source == "default"
    assert loaded.embedded and loaded.policy == Policy(5, 30, 3600)


@pytest.mark.parametrize("key", OTHERS)
def test_the_file_wins_over_the_default_the_environment_over_it_and_a_flag_over_both(
    key: str, tmp_path: Path
) -> None:
    setting = next(setting for setting in SETTINGS if setting.key == key)
    (first, first_means), (second, second_means) = OTHERS[key]
    file = with_file(tmp_path, as_toml(key, first))
    loaded = load(file, needed(key))
    assert (value(loaded, key), loaded.origins[key].source) == (first_means, str(file))
    environment = {**needed(key), setting.variable: second}
    loaded = load(file, environment)
    assert (value(loaded, key), loaded.origins[key].source) == (second_means, setting.variable)
    loaded = load(file, environment, {key: first})
    assert (value(loaded, key), loaded.origins[key].source) == (first_means, "flag")
    loaded = load(file, environment, {key: None})
    assert value(loaded, key) == second_means


def test_an_empty_variable_counts_as_not_set() -> None:
    assert value(load(NOTHING, {"SUREHOOK_LISTEN": ""}), "api.listen") == "127.0.0.1:8080"


def test_toml_numbers_booleans_and_lists_are_taken_as_they_are(tmp_path: Path) -> None:
    text = (
        "[database]\nroles = false\nconnections = 8\nconnect_timeout = 2.5\n"
        '[delivery]\nallow_networks = ["10.0.0.0/8"]\n'
    )
    loaded = load(with_file(tmp_path, text), {})
    assert loaded.flag("database.roles") is False
    assert loaded.number("database.connections") == 8
    assert loaded.seconds("database.connect_timeout") == 2.5
    assert [str(network) for network in loaded.allow_networks] == ["10.0.0.0/8"]


def test_database_url_stands_in_for_ours_and_ours_wins() -> None:
    roles_off = {"SUREHOOK_ROLES": "off"}
    loaded = load(NOTHING, {**roles_off, "DATABASE_URL": "postgresql://h/theirs"})
    assert loaded.text("database.url") == "postgresql://h/theirs"
    assert loaded.origins["database.url"].source == "DATABASE_URL"
    ours = {"DATABASE_URL": "postgresql://h/theirs", "SUREHOOK_DATABASE_URL": "postgresql://h/ours"}
    assert load(NOTHING, {**roles_off, **ours}).text("database.url") == "postgresql://h/ours"


def test_a_database_url_that_nobody_needs_is_not_even_looked_at(tmp_path: Path) -> None:
    environment = {
        "SUREHOOK_ROLES": "off",
        "DATABASE_URL": "sqlite:///x",
        "SUREHOOK_DATABASE_URL": "postgresql://h/ours",
    }
    assert load(NOTHING, environment).text("database.url") == "postgresql://h/ours"


def test_the_file_is_found_by_name_by_variable_or_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = with_file(tmp_path, as_toml("log.level", "debug"))
    assert load(file, {}).text("log.level") == "debug"
    assert load(None, {"SUREHOOK_CONFIG": str(file)}).text("log.level") == "debug"
    monkeypatch.chdir(tmp_path)
    assert load(None, {}).text("log.level") == "debug"


@pytest.mark.parametrize("login", [role.login for role in ROLES])
def test_a_login_may_have_its_own_url(login: str, tmp_path: Path) -> None:
    text = f'[database.urls]\n{login} = "postgresql://file/d"\n'
    file = with_file(tmp_path, text)
    assert load(file, {}).login_urls == {login: "postgresql://file/d"}
    variable = f"SUREHOOK_DATABASE_URL_{login.upper()}"
    loaded = load(file, {variable: "postgresql://environment/d"})
    assert loaded.login_urls == {login: "postgresql://environment/d"}


def test_the_policy_is_the_preset_with_what_was_set_besides() -> None:
    durable = load(NOTHING, {"SUREHOOK_RETRY_PRESET": "durable"})
    assert durable.policy == PRESETS["durable"]
    mixed = {"SUREHOOK_RETRY_PRESET": "durable", "SUREHOOK_RETRY_MAX_ATTEMPTS": "3"}
    assert load(NOTHING, mixed).policy == Policy(3, 30, 6 * 3600)


# ── Mistakes ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("key", "wrong"), [(key, one) for key in WRONG for one in WRONG[key]])
def test_a_wrong_value_gives_one_line_that_names_the_setting_and_the_place(
    key: str, wrong: object, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as flagged:
        load(NOTHING, needed(key), {key: wrong})
    assert str(flagged.value).startswith(f"{key} must be ") and "(flag)" in str(flagged.value)
    assert "\n" not in str(flagged.value)
    if isinstance(wrong, str) and wrong:
        setting = next(setting for setting in SETTINGS if setting.key == key)
        with pytest.raises(ConfigError, match=rf"\({setting.variable}\)"):
            load(NOTHING, {**needed(key), setting.variable: wrong})
        file = with_file(tmp_path, as_toml(key, wrong))
        with pytest.raises(ConfigError) as from_file:
            load(file, needed(key))
        assert f"({file})" in str(from_file.value) and "\n" not in str(from_file.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[retry]\nmax_atempts = 3\n", "there is no setting retry.max_atempts. Did you mean retry"),
        ("[colours]\nred = 1\n", "there is no setting colours.red. `surehook config` lists them"),
        ("listen = 'x:1'\n", "`listen` must be inside a [section]."),
        ("[database]\nurls = 5\n", "there is no setting database.urls"),
        ("[database.urls]\nnobody = 'postgresql://h/d'\n", "there is no login nobody."),
        ("[database.urls]\nrouter = 'h/d'\n", "The database URL of router must be a URL that"),
        ("[retry\n", "cannot be read: "),
        ("[api]\nlisten = 'a:1'\nlisten = 'b:1'\n", "cannot be read: "),
    ],
)
def test_a_file_with_a_mistake_is_named_in_one_line(text: str, says: str, tmp_path: Path) -> None:
    file = with_file(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    assert says in str(refused.value) and str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no configuration file"):
        load(tmp_path / "missing.toml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, {})
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "bytes.toml", {})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("SUREHOOK_LISTN", "There is no setting SUREHOOK_LISTN. Did you mean SUREHOOK_LISTEN?"),
        ("SUREHOOK_DATABASE_URL_NOBODY", "there is no login nobody."),
    ],
)
def test_an_unknown_variable_is_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(NOTHING, {name: "postgresql://h/d"})
    assert says in str(refused.value)


def test_variables_for_tests_are_left_alone() -> None:
    load(NOTHING, {"SUREHOOK_TEST_CRASHPOINT": "x", "SUREHOOK_CONFIG": ""})


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        (
            {"SUREHOOK_REQUEST_TIMEOUT": "26s"},
            "worker.lease_duration (30s) must be at least delivery.request_timeout + 5s (31s).",
        ),
        (
            {"SUREHOOK_RETRY_BASE_DELAY": "2h"},
            "retry.base_delay (2h) must not exceed retry.max_delay (1h).",
        ),
        ({"SUREHOOK_DATABASE_URL": "postgresql://h/d"}, "database.role_secret is not set"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    environment: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(NOTHING, environment)
    assert says in str(refused.value)


# ── Secrets ───────────────────────────────────────────────────────────────────────────────────

SECRET_SETTINGS = [setting for setting in SETTINGS if setting.secret]


def shown_everywhere(loaded: Config) -> str:
    lines = [repr(loaded), str(loaded), f"{loaded.origins}"]
    for origin in loaded.origins.values():
        lines += [repr(origin), str(origin), origin.shown()]
    return "\n".join(lines)


def test_no_secret_is_shown_by_repr_str_or_the_list_of_settings() -> None:
    environment = {setting.variable: SECRET for setting in SECRET_SETTINGS}
    environment["SUREHOOK_DATABASE_URL"] = "postgresql://user:sesame@h/d?password=sesame&x=1"
    environment["SUREHOOK_DATABASE_URL_ROUTER"] = "postgresql://router:sesame@h/d"
    environment["SUREHOOK_DELIVERY_PROXY"] = "http://user:sesame@proxy:1"
    shown = shown_everywhere(load(NOTHING, environment))
    assert SECRET not in shown and "sesame" not in shown
    assert "postgresql://user:…@h/d?x=1" in shown


@pytest.mark.parametrize("setting", SECRET_SETTINGS, ids=lambda setting: setting.key)
def test_no_error_shows_a_wrong_secret(setting: Setting) -> None:
    with pytest.raises(ConfigError) as refused:
        load(NOTHING, {setting.variable: "sesame://sesame"[:10]})
    assert "sesame" not in str(refused.value)


def test_no_error_shows_a_wrong_component_url() -> None:
    with pytest.raises(ConfigError) as refused:
        load(NOTHING, {"SUREHOOK_DATABASE_URL_ROUTER": "router:sesame@h/d"})
    assert "sesame" not in str(refused.value)


# What a secret setting may look like.
GOOD = {
    "SUREHOOK_DATABASE_URL": "postgresql://user:sesame@h/d",
    "SUREHOOK_DELIVERY_PROXY": "http://user:sesame@proxy:1",
}


@pytest.mark.parametrize("setting", SECRET_SETTINGS, ids=lambda setting: setting.key)
def test_every_secret_can_stand_in_a_file_and_is_hidden_as_ever(
    setting: Setting, tmp_path: Path
) -> None:
    value = GOOD.get(setting.variable, SECRET)
    (tmp_path / "secret").write_text(f"{value}\n")
    environment = {f"{setting.variable}_FILE": str(tmp_path / "secret")}
    loaded = load(NOTHING, environment, {"database.roles": False})
    assert loaded.optional_text(setting.key) == value
    assert loaded.origins[setting.key].source == f"{setting.variable}_FILE"
    shown = shown_everywhere(loaded)
    assert SECRET not in shown and "sesame" not in shown


def test_the_url_of_a_login_can_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("postgresql://router:sesame@h/d")
    environment = {
        "SUREHOOK_DATABASE_URL": "postgresql://h/d",
        "SUREHOOK_DATABASE_URL_ROUTER_FILE": str(tmp_path / "url"),
    }
    assert load(NOTHING, environment).login_urls == {"router": "postgresql://router:sesame@h/d"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "The file of SUREHOOK_ROLE_SECRET_FILE cannot be read: "),
        (b" \n", "is empty."),
        (b"\xff\xfe", "is not text."),
        (b"sesame", "database.role_secret must be a text of at least 16 characters"),
    ],
)
def test_a_file_without_a_usable_secret_is_refused_in_one_line(
    content: bytes | None, says: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        load(NOTHING, {"SUREHOOK_ROLE_SECRET_FILE": str(tmp_path / "secret")})
    assert says in str(refused.value) and "sesame" not in str(refused.value)
    assert "SUREHOOK_ROLE_SECRET_FILE" in str(refused.value)


def test_a_secret_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    file = str(tmp_path / "secret")
    environment = {"SUREHOOK_ROLE_SECRET": SECRET, "SUREHOOK_ROLE_SECRET_FILE": file}
    with pytest.raises(ConfigError, match="are both set"):
        load(NOTHING, environment)
    environment["SUREHOOK_ROLE_SECRET"] = ""  # as a compose file says that it is not set
    assert load(NOTHING, environment).optional_text("database.role_secret") == SECRET


def test_only_a_secret_can_stand_in_a_file() -> None:
    with pytest.raises(ConfigError, match="There is no setting SUREHOOK_LISTEN_FILE"):
        load(NOTHING, {"SUREHOOK_LISTEN_FILE": "/etc/hostname"})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h/d", "postgresql://h/d"),
        ("postgresql://u@h:5/d", "postgresql://u@h:5/d"),
        ("postgresql://u:p@h/d", "postgresql://u:…@h/d"),
        ("postgresql://u:p:q@r@h/d", "postgresql://u:…@h/d"),
        ("postgresql://h/d?user=u&PassWord=p", "postgresql://h/d?user=u"),
        ("postgresql://h/d?sslpassword=p&sslmode=require", "postgresql://h/d?sslmode=require"),
        ("postgresql://u@/d?host=/run&passfile=/f", "postgresql://u@/d?host=/run&passfile=/f"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


# ── The default file ──────────────────────────────────────────────────────────────────────────


def test_the_default_file_has_the_defaults_of_the_code(tmp_path: Path) -> None:
    file = REPOSITORY / "config.default.toml"
    assert file.read_text(encoding="utf-8") == default_file()
    loaded = load(file, {})
    for setting in SETTINGS:
        assert value(loaded, setting.key) == setting.default
        source = "default" if setting.default is None else str(file)
        assert loaded.origins[setting.key].source == source


def test_every_commented_line_of_the_default_file_is_right_once_uncommented(tmp_path: Path) -> None:
    lines = []
    for line in default_file().splitlines():
        is_setting = line.startswith("#") and not line.startswith("# ")
        lines.append(line[1:] if is_setting else line)
    text = "\n".join(lines).replace('"…"', f'"{SECRET}"')
    assert set(OTHERS) <= {
        f"{section}.{name}" for section, entries in tomllib.loads(text).items() for name in entries
    }
    loaded = load(with_file(tmp_path, text), {})
    assert set(loaded.login_urls) == {role.login for role in ROLES}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.5, "500ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (90, "90s"),
        (60, "1m"),
        (7200, "2h"),
        (86400, "1d"),
    ],
)
def test_a_duration_is_written_as_one_would_in_the_file(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
    assert duration(0.001, 1e9)(words) == seconds


def test_a_network_that_is_none_is_named_once() -> None:
    for given, said in (
        ("foo", "networks such as 10.0.0.0/8, not 'foo' (SUREHOOK_ALLOW_NETWORKS)."),
        ("10.0.0.0/8 foo", "networks such as 10.0.0.0/8 (look at 'foo': "),
    ):
        with pytest.raises(ConfigError) as wrong:
            load(environment={"SUREHOOK_CONFIG": os.devnull, "SUREHOOK_ALLOW_NETWORKS": given})
        assert f"delivery.allow_networks must be {said}" in str(wrong.value)
