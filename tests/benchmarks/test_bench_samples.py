from benchmarks.bench_samples import Samples


def test_an_entry_tells_median_percentile_ratio_and_every_failure() -> None:
    samples = Samples(baseline="base")
    for value in (0.010, 0.020, 0.030):
        samples.add("print", "base", value)
        samples.add("print", "ours", value / 2)
    samples.fail("print", "ours", "no reply")
    samples.remark("print", "ours", "nothing lost")
    assert samples.text("print", "base") == "20 ms / 30 ms"
    assert samples.text("print", "ours") == "10 ms / 15 ms (0.50×), ✗ no reply (1 of 4), nothing lost"


def test_what_was_never_measured_is_a_dash() -> None:
    assert Samples(baseline="base").text("start", "ours") == "–"
