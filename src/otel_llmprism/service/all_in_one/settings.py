# The file and the flags of `up`: the processor's settings, and those of the store and the page.
# Flags win over the file. Values only; opens nothing but the file.
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from otel_llmprism.config.convert import convert_mapping
from otel_llmprism.config.errors import ConfigError
from otel_llmprism.config.load import load_mapping
from otel_llmprism.config.secret import Secret
from otel_llmprism.exporters.store.config import StoreConfig
from otel_llmprism.exporters.store.searchable import choose_indexed_keys
from otel_llmprism.pipeline.ingress_config import Durability
from otel_llmprism.receivers.auth import BearerToken, load_token
from otel_llmprism.receivers.listen_address import parse_listen_address
from otel_llmprism.receivers.otlp_grpc import OtlpGrpcConfig
from otel_llmprism.receivers.otlp_http import OtlpHttpConfig
from otel_llmprism.service.settings import (
    LogSettings,
    Mode,
    ProcessorConfig,
    check_no_loop,
    unfold_short_forms,
)

TOKEN_VARIABLE = "OTEL_LLMPRISM_UI_TOKEN"
TOKEN_FILE_VARIABLE = "OTEL_LLMPRISM_UI_TOKEN_FILE"
_LOG_FOLDER = "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    max_bytes: int = 2 << 30
    max_age_s: float = 7 * 86400.0
    index_attributes: tuple[str, ...] = ()
    index_content: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UiSettings:
    endpoint: str = "127.0.0.1:8317"
    allowed_hosts: tuple[str, ...] = ()
    token_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpConfig(ProcessorConfig):
    store: StoreSettings = field(default_factory=StoreSettings)
    ui: UiSettings = field(default_factory=UiSettings)


@dataclass(frozen=True, slots=True)
class UpFlags:
    """What the command line says; None leaves it to the file."""

    config: Path | None = None
    data: Path | None = None
    otlp_grpc: str | None = None
    otlp_http: str | None = None
    ui: str | None = None
    ui_token_file: str | None = None
    export: str | None = None


@dataclass(frozen=True, slots=True)
class UpSettings:
    """Everything decided: what `up` is built from."""

    config: UpConfig
    data: Path
    token: BearerToken | None

    @property
    def has_export(self) -> bool:
        """Whether anything goes on to a further backend."""
        return bool(self.config.exporters.otlp.endpoint)

    def build_store_config(self) -> StoreConfig:
        """Return the store's configuration; it is as durable as the log."""
        store = self.config.store
        return StoreConfig(
            self.data,
            max_bytes=store.max_bytes,
            max_age_s=store.max_age_s,
            durability="host" if self.config.service.durability is Durability.HOST else "process",
            index_attributes=store.index_attributes,
            index_content=store.index_content,
        )


def load_up_settings(flags: UpFlags, environment: Mapping[str, str]) -> UpSettings:
    """Return what the file, the flags and the environment ask for; raises ConfigError with the mend."""
    source = "up" if flags.config is None else str(flags.config)
    mapping = {} if flags.config is None else load_mapping(flags.config, environment)
    data = (flags.data or find_data_folder(environment)).expanduser().absolute()
    config = _apply_flags(_read_config(mapping, source), flags, data)
    if config.service.mode is not Mode.INLINE:
        raise ConfigError(
            f"{source}: up stores everything it gets: remove mode, or run the processor instead"
        )
    _check_store(config.store, source)
    check_no_loop(config, source)
    return UpSettings(config, data, _find_token(config.ui, environment))


def find_data_folder(environment: Mapping[str, str]) -> Path:
    """Return where `up` keeps its data unless told: the user's data folder (XDG)."""
    base = environment.get("XDG_DATA_HOME") or os.path.join("~", ".local", "share")  # noqa: PTH118 - ~ comes first
    return Path(base) / "otel-llmprism"


def _read_config(mapping: Mapping[str, Any], source: str) -> UpConfig:
    return convert_mapping(unfold_short_forms(mapping, source), UpConfig, source)


def _apply_flags(config: UpConfig, flags: UpFlags, data: Path) -> UpConfig:
    protocols, service = config.receivers.otlp.protocols, config.service
    if flags.otlp_grpc is not None:
        grpc = replace(protocols.grpc or OtlpGrpcConfig(), endpoint=flags.otlp_grpc)
        protocols = replace(protocols, grpc=grpc)
    if flags.otlp_http is not None:
        http = replace(protocols.http or OtlpHttpConfig(), endpoint=flags.otlp_http)
        protocols = replace(protocols, http=http)
    if service.log.directory == LogSettings().directory:
        service = replace(service, log=replace(service.log, directory=data / _LOG_FOLDER))
    ui = replace(
        config.ui,
        endpoint=config.ui.endpoint if flags.ui is None else flags.ui,
        token_file=config.ui.token_file if flags.ui_token_file is None else flags.ui_token_file,
    )
    otlp = config.exporters.otlp
    return replace(
        config,
        receivers=replace(config.receivers, otlp=replace(config.receivers.otlp, protocols=protocols)),
        exporters=replace(
            config.exporters,
            otlp=replace(otlp, endpoint=otlp.endpoint if flags.export is None else flags.export),
        ),
        service=service,
        ui=ui,
    )


def _check_store(store: StoreSettings, source: str) -> None:
    if store.max_bytes < 1 << 20 or store.max_age_s <= 0:
        raise ConfigError(f"{source}: store.max_bytes must be at least 1MiB, store.max_age above 0")
    try:
        choose_indexed_keys(store.index_attributes, with_content=store.index_content)
    except ValueError as error:
        raise ConfigError(f"{source}: store.{error}") from error


def _find_token(ui: UiSettings, environment: Mapping[str, str]) -> BearerToken | None:
    text = environment.get(TOKEN_VARIABLE, "").strip()
    token = load_token(ui.token_file or environment.get(TOKEN_FILE_VARIABLE, ""))
    if token is None and text:
        token = BearerToken(Secret(text))
    if token is None and not parse_listen_address(ui.endpoint).is_loopback:
        raise ConfigError(
            f"--ui {ui.endpoint} is open to the network and needs a token: --ui-token-file FILE, "
            f"or {TOKEN_VARIABLE}; or keep it on 127.0.0.1"
        )
    return token
