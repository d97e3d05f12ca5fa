"""The report in a real browser. Needs Chromium, its driver and requirements-browser.lock (make test-browser)."""

import re
import shutil

import pytest
from report_fakes import HOSTILE, hostile_collection, plain_collection

from eval.collection import load_runs
from eval.report import write_report

pytestmark = pytest.mark.browser
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
VIEWS = ("tables", "figures", "questions", "compare", "memory")
ALL = {"compare": "compare?which=all"}
DESKTOP, PHONE = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: make test-browser adds it")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("no Chromium with its chromedriver on this machine (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield Browser(started)
    started.quit()


class Browser:
    """A page at a size and in a scheme, and what a test asks of it."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, page, view="tables", *, size=DESKTOP, dark=False):
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get("about:blank")
        self.driver.get(f"{page.as_uri()}#{view}")
        self.wait("document.readyState === 'complete' && document.documentElement.classList.contains('scripted')")
        self.wait("!document.querySelector('[aria-busy]')")
        assert not self.js("return !document.getElementById('trouble').hidden")

    def js(self, script, *given):
        return self.driver.execute_script(script, *given)

    def wait(self, condition):
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 20, poll_frequency=0.02).until(lambda _: self.js(f"return {condition}"), condition)

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0]).textContent", selector)

    def count(self, selector):
        return self.js("return document.querySelectorAll(arguments[0]).length", selector)

    def choose(self, id, value):
        """Set a select or a search field as a person does."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.support.ui import Select

        field = self.driver.find_element(By.ID, id)
        if field.tag_name == "select":
            Select(field).select_by_value(value)
        else:
            field.clear()
            field.send_keys(value)
        self.wait("!document.querySelector('[aria-busy]')")

    def keys(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    root = tmp_path_factory.mktemp("plain")
    write_report(load_runs(plain_collection(root / "runs")), root / "report.html")
    return root / "report.html"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile")
    write_report(load_runs(hostile_collection(root / "runs")), root / "report.html")
    return root / "report.html"


def test_every_view_opens_without_a_complaint_or_a_connection(browser, plain):
    browser.complaints()
    browser.driver.get_log("performance")
    for view in VIEWS:
        browser.open(plain, view)
        assert browser.js("return [...document.querySelectorAll('.view')].filter(v => !v.hidden).map(v => v.id)") == [
            f"view-{view}"
        ]
        assert browser.text("nav a[aria-current]").lower() == view
    assert browser.complaints() == []
    asked = re.findall(r'"url":"(\w+):', "".join(entry["message"] for entry in browser.driver.get_log("performance")))
    assert set(asked) <= {"file", "data", "about"}


def test_the_policy_holds_against_the_page_itself(browser, plain):
    browser.open(plain)
    blocked = browser.driver.execute_async_script(
        "const done = arguments[0];"
        "document.addEventListener('securitypolicyviolation', (e) => done(e.effectiveDirective), { once: true });"
        "fetch('https://example.invalid/').catch(() => {});"
    )
    assert blocked == "connect-src"
    browser.js("const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)")
    assert browser.js("return window.ran") is None
    browser.complaints()


def test_filters_narrow_the_answers(browser, plain):
    browser.open(plain, "questions")
    assert browser.text("#q-list .count") == "360 of 360 answers, 120 distinct questions"
    assert browser.count("#q-list tbody tr") == 50
    browser.choose("q-filters-run", "0")
    assert browser.text("#q-list .count").startswith("120 of 360")
    browser.choose("q-filters-category", "1")  # numbers 0, 5, ..., 55 on two conversations
    assert browser.text("#q-list .count").startswith("24 of 360")
    browser.choose("q-filters-outcome", "full")  # of these 0, 15, 30, 45
    assert browser.text("#q-list .count").startswith("8 of 360")
    browser.choose("q-filters-sample", "s2")
    assert browser.text("#q-list .count") == "4 of 360 answers, 4 distinct questions"
    browser.choose("q-filters-text", "DAY 45")
    assert browser.text("#q-list .count").startswith("1 of 360")
    assert "category=1" in browser.js("return location.hash")
    address = browser.js("return location.hash").removeprefix("#")
    browser.open(plain, address)  # what is seen can be cited
    assert browser.text("#q-list .count").startswith("1 of 360")
    browser.open(plain, "questions?category=5&outcome=trap")
    assert browser.text("#q-list .count").startswith("24 of 360")
    browser.open(plain, "questions?found=missed&run=2")
    assert browser.text("#q-list .count").startswith("80 of 360")


def test_pages_and_sorting(browser, plain):
    browser.open(plain, "questions")
    browser.js("document.querySelectorAll('#q-list .pager')[0].querySelectorAll('button')[3].click()")
    assert browser.text("#q-list .pager span") == "page 8 of 8" and browser.count("#q-list tbody tr") == 10
    browser.js("document.querySelector('[data-sort=f1_amem]').click()")
    assert browser.text("#q-list .pager span") == "page 1 of 8"
    assert browser.text("#q-list tbody td.number") == "100.00"
    browser.js("document.querySelector('[data-sort=f1_amem]').click()")
    assert browser.text("#q-list tbody td.number") == "0.00"
    assert browser.js("return document.querySelector('[data-sort=f1_amem]').closest('th').ariaSort") == "ascending"


def test_an_opened_answer_tells_its_evidence(browser, plain):
    browser.open(plain, "questions?run=0&outcome=full&sample=s1")
    browser.js("document.querySelector('#q-list .opener').click()")
    browser.wait("document.querySelector('#q-list .evidence')")
    assert "1 of 1 reached the reader" in browser.text("#q-list .gold h5")
    assert "found, round 0, rank 1, by dense" in browser.text("#q-list .gold li")
    assert "Ann: said D1:1" in browser.text("#q-list .gold li")
    assert browser.count("#q-list .evidence li") == 2 and browser.count("#q-list .evidence li.has-gold") == 1
    assert "sparse + dense" in browser.text("#q-list .evidence li:nth-child(2)")
    browser.js("document.querySelector('#q-list .opener').click()")
    assert browser.count("#q-list .evidence") == 0
    browser.open(plain, "questions?run=0&outcome=none")
    browser.js("document.querySelector('#q-list .opener').click()")
    browser.wait("document.querySelector('#q-list .gold')")
    assert "0 of 1 reached" in browser.text("#q-list .gold h5") and "missed" in browser.text("#q-list li.is-missed")


def test_two_systems_side_by_side(browser, plain):
    browser.open(plain, "compare")
    assert "80 of 120 questions shown" in browser.text("#c-list .count")
    assert "A higher on 40, B higher on 40, equal on 40" in browser.text("#c-list .count")
    browser.choose("c-filters-which", "a")
    assert browser.text("#c-list .count").startswith("40 of 120")
    browser.js("document.querySelector('#c-list .opener').click()")
    browser.wait("document.querySelectorAll('#c-list .pair section').length === 2")
    assert browser.js("return [...document.querySelectorAll('#c-list .pair h4')].map(h => h.textContent)") == [
        "A: memfly",
        "B: memfly-no_link",
    ]
    browser.choose("c-filters-b", "0")
    assert "A higher on 0, B higher on 0, equal on 120" in browser.text("#c-list .count")


def test_a_memory_can_be_searched_and_walked(browser, plain):
    browser.open(plain, "memory")
    assert browser.text("#m-body .count") == "2 notes, 3 keywords, 1 topics, 1 edges"
    assert "Ann bought a kiln" in browser.text(".node-panel")
    assert "0.75" in browser.text(".node-panel") and browser.count(".ego .node") == 4
    assert browser.count(".growth svg") == 7
    browser.choose("m-filters-text", "kiln")
    assert browser.js("return [...document.querySelectorAll('.results .name')].map(n => n.textContent)") == [
        "D1:1 D1:3",
        "kiln",
        "topic 0: ann, kiln",
    ]
    browser.js("document.querySelector('.results .walk-keyword').click()")
    assert browser.text(".node-panel h3") == "keyword kiln"
    browser.js("document.querySelector('.node-panel .walk-topic').click()")
    assert browser.text(".node-panel h3") == "topic topic 0: ann, kiln"
    browser.js("document.querySelector('.ego .node-note').dispatchEvent(new MouseEvent('click', { bubbles: true }))")
    assert browser.text(".node-panel h3") == "note D1:1 D1:3"
    assert browser.js("return document.activeElement.classList.contains('node-panel')")
    browser.open(plain, "memory?run=1&sample=s2&at=turn:D1:2")  # the way from an answer's evidence
    assert browser.text(".node-panel h3") == "note D1:2"


def test_everything_is_reached_by_keyboard(browser, plain):
    from selenium.webdriver.common.keys import Keys

    browser.open(plain, "questions?run=0")

    def focus():
        return browser.js(
            "const a = document.activeElement; const o = getComputedStyle(a);"
            "return [a.tagName, a.id || a.className, a.textContent.slice(0, 20), o.outlineStyle, a.matches(':focus-visible')]"
        )

    browser.keys(Keys.TAB)
    assert focus()[2].startswith("Skip to")
    seen = []
    for _ in range(40):
        browser.keys(Keys.TAB)
        seen.append(focus())
        if seen[-1][1] == "opener":
            break
    assert {"q-filters-run", "q-filters-category", "q-filters-text"} <= {one[1] for one in seen}
    assert seen[-1][1] == "opener"
    assert all(visible and outline != "none" for _, _, _, outline, visible in seen)
    browser.keys(Keys.ENTER)
    browser.wait("document.querySelector('#q-list .evidence')")
    assert browser.js("return document.activeElement.getAttribute('aria-expanded')") == "true"
    browser.open(plain, "memory")
    browser.js("document.querySelector('.ego .node-keyword').focus()")
    browser.keys(Keys.ENTER)
    assert browser.text(".node-panel h3").startswith("keyword ")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_page_never_scrolls_sideways(browser, plain, hostile, view, size):
    for page in (plain, hostile):
        browser.open(page, ALL.get(view, view), size=size)
        browser.js("document.querySelectorAll('.view:not([hidden]) .opener').forEach((b, i) => i < 3 && b.click())")
        browser.js("document.querySelectorAll('.view:not([hidden]) details').forEach((d) => (d.open = true))")
        if view in ("questions", "compare"):
            browser.wait("document.querySelector('.view:not([hidden]) .detail')")
        wide = browser.js("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert wide[0] <= size[0] and wide[1] == size[0], (page.parent.name, wide)


CONTRAST = """
const light = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
const behind = (node) => { for (; node; node = node.parentElement) { const c = parse(getComputedStyle(node).backgroundColor);
  if (c.length === 3 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
const poor = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest('script, style, option, :disabled')) continue;
  if (node.closest('svg') && /on-|name|number/.test(node.getAttribute('class') || '')) continue;
  const style = getComputedStyle(node);
  const [a, b] = [light(parse(node.closest('svg') ? style.fill : style.color)), light(behind(node))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) poor.push([ratio.toFixed(2), node.tagName, node.getAttribute('class'), walker.currentNode.data.slice(0, 30)]);
}
return poor;
"""


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_can_be_read_in_light_and_dark(browser, plain, view, dark):
    browser.open(plain, view, dark=dark)
    background = browser.js("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) is dark
    browser.js("document.querySelectorAll('.view:not([hidden]) .opener').forEach((b, i) => i < 2 && b.click())")
    if view in ("questions", "compare"):
        browser.wait("document.querySelector('.view:not([hidden]) .detail')")
    assert browser.js(CONTRAST) == []


def test_hostile_text_stays_text_in_every_view(browser, hostile):
    browser.complaints()
    for view in VIEWS:
        browser.open(hostile, ALL.get(view, view))
        browser.js("document.querySelectorAll('.view:not([hidden]) .opener').forEach((b) => b.click())")
        if view in ("questions", "compare"):
            browser.wait("document.querySelector('.view:not([hidden]) .detail')")
        assert browser.js("return document.title") == "memfly-bench report"
        assert (
            browser.count("main img, main script, main iframe, [onload], [onerror], main [href]:not([href^='#'])") == 0
        )
    browser.open(hostile, "questions")
    shown = browser.text("#q-list tbody")
    assert all(text in shown for text in HOSTILE)
    browser.choose("q-filters-text", "<img src=x")
    assert browser.count("#q-list tbody tr") > 0
    browser.open(hostile, "memory")
    assert all(text in browser.text("#m-body") for text in HOSTILE)
    assert browser.complaints() == []


def test_a_text_that_turns_the_reading_direction_turns_nothing_beside_it(browser, plain):
    browser.open(plain)
    places = browser.js(
        "const line = document.createElement('p'); document.querySelector('main').prepend(line);"
        "const [name, after] = ['span', 'i'].map((tag) => line.appendChild(document.createElement(tag)));"
        "name.textContent = '\\u202eabc'; after.textContent = 'right';"
        "return [name, after].map((one) => one.getBoundingClientRect().left)"
    )
    assert places[0] < places[1]
