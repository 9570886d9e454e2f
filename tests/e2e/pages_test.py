"""The pages of report, plan, bench layouts and serve in a browser: nothing fails, nothing is wider than the window, and they answer."""

import e2e
from browser import browser
from e2e import quintet, tiny
from serving import serving

WIDTHS = (1400, 800, 360)


def check(page, address, width, dark=False):
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
    page.open(address, width)
    # Two frames, after which what observers of the page draw is there.
    page.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert not page.faults, (address, width, page.faults)
    wide = page.eval("document.documentElement.scrollWidth")
    assert wide <= width, (address, width, wide)
    back = page.eval("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in back.strip("rgb()").split(",")[:3]) / 3
    assert brightness < 100 if dark else brightness > 200, (address, back)


def test_the_report_draws_curves_that_log_and_smoothing_change(folder):
    for name in ("one", "two"):
        quintet(*tiny(folder / name, 20, f"--gin.DROPOUT_RATE={0.1 if name == 'one' else 0.2}"))
    quintet("report", folder / "one", folder / "two", f"--output={folder}/page.html")
    with browser() as page:
        for width in WIDTHS:
            check(page, (folder / "page.html").as_uri(), width)
            drawn = page.eval("[...document.querySelectorAll('figure path.line')].filter(line => line.getAttribute('d').length > 10).length")
            assert drawn >= 4, (width, drawn)
        check(page, (folder / "page.html").as_uri(), 1400, dark=True)
        lines = "[...document.querySelectorAll('figure path.line')].map(line => line.getAttribute('d')).join()"
        before = page.eval(lines)
        page.eval("document.getElementById('log').click()")
        logarithmic = page.eval(lines)
        page.eval("{const s = document.getElementById('smoothing'); s.value = 0.9; s.dispatchEvent(new Event('input'))}")
        assert len({before, logarithmic, page.eval(lines)}) == 3
        assert not page.faults, page.faults


def test_the_pages_of_layouts(folder):
    model = ["--model=t5_1_1_small", "--batch=8"]
    quintet("plan", f"--cluster={e2e.ROOT}/bench/published/a100_512.json", *model, f"--report={folder}/planned.html")
    with browser() as page:
        for width in WIDTHS:
            check(page, (folder / "planned.html").as_uri(), width)
            assert page.eval("document.querySelectorAll('tbody tr').length") >= 1


def test_the_page_of_the_server_answers(folder):
    quintet(*tiny(folder / "tiny", 4))
    with serving(folder / "tiny") as server, browser() as page:
        for width in WIDTHS:
            check(page, f"http://127.0.0.1:{server.port}/", width)
        page.eval("document.getElementById('prompt').value = 'words: 7'; document.getElementById('max_tokens').value = 5")
        page.eval("document.getElementById('go').click()")
        page.eval("new Promise(done => {const look = () => /token/.test(document.getElementById('status').textContent) ? done()"
                  " : requestAnimationFrame(look); look()})")
        assert page.eval("document.getElementById('answers').children.length") == 1
        assert not page.faults, page.faults


e2e.run(globals())
