"""docs/reference/metrics.md: what /api/v1/metrics tells Prometheus."""

from __future__ import annotations

from typing import Final

from prometheus_client.metrics import MetricWrapperBase

from server.metrics import Metrics
from tests.docs.sources import cell

HEAD: Final = """# Metrics

<!-- Made by `python -m tests.docs.generate`. -->

`GET /api/v1/metrics` answers in Prometheus' text format, to those who bring a token. For
Prometheus:

```yaml
scrape_configs:
  - job_name: hpcplat
    scheme: https
    metrics_path: /api/v1/metrics
    authorization: {credentials_file: /etc/prometheus/hpcplat.token}
    static_configs: [{targets: [hpcplat.example.org]}]
```

A histogram has the further names `…_bucket`, `…_sum` and `…_count`; a counter ends in
`_total`.

| name | kind | labels | what it tells |
|---|---|---|---|
"""
TAIL: Final = """
Worth an alarm: `hpcplat_reconcile_age_seconds` above 120 (Slurm has not been seen for two
minutes), a growing `hpcplat_queue_depth`, and `hpcplat_slurm_failures_total` that rises.
"""


def page() -> str:
    """Return the page, made from a service's own registry."""
    held = sorted(vars(Metrics()).items(), key=lambda pair: str(pair[0]))
    rows = [_row(one) for _, one in held if isinstance(one, MetricWrapperBase)]
    return HEAD + "\n".join(sorted(rows)) + "\n" + TAIL


def _row(metric: MetricWrapperBase) -> str:
    (family,) = metric.describe()
    labels = ", ".join(f"`{name}`" for name in metric._labelnames)
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return f"| `{name}` | {family.type} | {labels} | {cell(family.documentation)} |"
