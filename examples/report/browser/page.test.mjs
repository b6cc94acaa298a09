// Opens the report of the made-up records in headless Chromium, at two widths, in
// light and in dark, and checks layout, text, colours, keyboard access and the
// rules of axe-core.
//
//	npm ci && npm test
//
// "npm run screenshots" replaces the screenshots of the README. It needs pngquant and a
// Chinese font: apt-get install pngquant fonts-wqy-microhei.
//
// Without Chromium or node_modules, the tests are skipped, or fail if CI=true.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const chromium = process.env.CHROMIUM ?? "/usr/bin/chromium";
const axe = join(here, "node_modules/axe-core/axe.min.js");

let missing;
if (!existsSync(chromium)) {
  missing = `no ${chromium}: run "apt-get install chromium", or set CHROMIUM to the path of a browser`;
} else if (!existsSync(axe)) {
  missing = 'no node_modules: run "npm ci" first';
}
if (missing && process.env.CI === "true") {
  throw new Error(missing);
}

let dir, url, browser;

before(async () => {
  if (missing) return;
  dir = mkdtempSync(join(tmpdir(), "report-"));
  const file = join(dir, "report.html");
  const { MSGPUSH_BASE_URL, MSGPUSH_ACCESS_KEY, ...env } = process.env; // report the fake server
  execFileSync("go", ["-C", join(here, ".."), "run", ".", "-o", file], { env, stdio: ["ignore", "ignore", "inherit"] });
  url = pathToFileURL(file).href;
  const playwright = await import("playwright-core");
  browser = await playwright.chromium.launch({
    executablePath: chromium,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
});

after(async () => {
  await browser?.close();
  if (dir) rmSync(dir, { recursive: true });
});

const colorsByLabel = {}; // of all widths and colour schemes

for (const width of [390, 1280]) {
  for (const colorScheme of ["light", "dark"]) {
    test(`${width} px, ${colorScheme}`, { skip: missing, timeout: 60_000 }, async (t) => {
      const context = await browser.newContext({ viewport: { width, height: 844 }, colorScheme });
      t.after(() => context.close());
      const page = await context.newPage();
      const messages = [], requests = [];
      page.on("console", (message) => messages.push(message.text()));
      page.on("pageerror", (error) => messages.push(String(error)));
      page.on("request", (request) => requests.push(request.url()));
      await page.goto(url);

      await t.test("text", () => checkText(page));
      await t.test("layout", () => checkLayout(page, width));
      await t.test("colours", () => checkColors(page, colorScheme));
      await t.test("keyboard", () => checkKeyboard(page, width)); // opens the table of the days
      await t.test("layout with the table of the days", () => checkLayout(page, width));
      await t.test("axe-core", () => checkAxe(page));
      assert.deepEqual(messages, [], "console messages");
      assert.deepEqual(requests, [url], "requests");
    });
  }
}

for (const colorScheme of ["light", "dark"]) {
  test(`screenshot, ${colorScheme}`, { skip: missing, timeout: 60_000 }, async (t) => {
    const context = await browser.newContext({ viewport: { width: 1000, height: 860 }, colorScheme });
    t.after(() => context.close());
    const page = await context.newPage();
    await page.goto(url);
    const png = await page.screenshot();
    const file = join(here, `report-${colorScheme}.png`);
    if (process.env.SCREENSHOTS === "replace") {
      assert.notEqual(execFileSync("fc-list", [":lang=zh"]).length, 0, "no Chinese font is installed");
      writeFileSync(file, execFileSync("pngquant", ["64", "-"], { input: png }));
    }
    // The fonts of two machines differ, so only the sizes are compared.
    const size = (png) => [png.readUInt32BE(16), png.readUInt32BE(20)];
    assert.deepEqual(size(readFileSync(file)), size(png));
  });
}

async function checkText(page) {
  const text = (await page.innerText("#summary")).replace(/\s+/g, " ");
  for (const want of [
    "Error rate 8.1% 91 of 1129 records",
    "Worst day 2026-10-27 35 of 65 records (53.8%)",
    "Worst rule on that day 严重告警转值班 rule 301, 15 of 35 errors",
    "Most frequent error on that day target 2: connection refused 19 of 35 errors",
  ]) {
    assert.ok(text.includes(want), `${want}: not in ${text}`);
  }
  assert.deepEqual(await page.locator("h2").allInnerTexts(),
    ["Summary", "Records per day", "Errors per day", "Rules with the most records", "Rules"]);
  assert.equal(await page.locator("table:not(:has(> caption))").count(), 0, "tables without a caption");
}

async function checkLayout(page, width) {
  const got = await page.evaluate(() => {
    const visible = (e) => e.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true });
    const name = (e) => `<${e.localName} class="${e.getAttribute("class") ?? ""}"> ${e.textContent.trim().slice(0, 30)}`;
    const all = [...document.querySelectorAll("body *")].filter(visible);
    const overflows = (e) => e.scrollWidth > e.clientWidth;
    return {
      scrollWidth: document.documentElement.scrollWidth,
      outside: all.filter((e) => !e.parentElement.closest(".scroll")).filter((e) => {
        const box = e.getBoundingClientRect();
        return box.left < 0 || box.right > innerWidth;
      }).map(name),
      // A region takes the focus and has a name. It has a hint only if it scrolls, and the
      // shadow at its right edge, 0.8 rem wide, is not behind its caption.
      regions: all.filter((e) => e.matches(".scroll")).filter((e) =>
        e.tabIndex !== 0 || e.getAttribute("role") !== "region" || !e.getAttribute("aria-label") ||
        overflows(e) !== visible(e.querySelector(".hint")) ||
        e.querySelector("caption span").getBoundingClientRect().right > e.getBoundingClientRect().right - 0.8 * 16).map(name),
      scrollers: all.filter((e) => !e.matches(".scroll") && overflows(e) &&
        !["visible", "clip"].includes(getComputedStyle(e).overflowX)).map(name),
      charts: all.filter((e) => e.localName === "svg").map((e) => e.parentElement.className),
      // The last line of a card is not a single short word.
      shortLines: all.filter((e) => e.matches(".note, .summary dt, .summary b")).filter((e) => {
        const range = document.createRange();
        range.selectNodeContents(e);
        const widths = [...range.getClientRects()].map((line) => line.width);
        return widths.at(-1) < Math.max(...widths) / 3;
      }).map(name),
      dayLabels: all.filter((e) => e.localName === "svg").map((svg) =>
        [...svg.querySelectorAll("text")].map((e) => e.textContent).filter((text) => /^\d\d-\d\d$/.test(text))),
      overlaps: all.filter((e) => e.localName === "svg").flatMap((svg) => {
        const texts = [...svg.querySelectorAll("text")].map((e) => [e.textContent, e.getBoundingClientRect()]);
        // A box is higher than its digits.
        return texts.flatMap(([a, p], i) => texts.slice(i + 1).filter(([, q]) => p.left < q.right && q.left < p.right &&
          Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > p.height / 2).map(([b]) => `${a} and ${b}`));
      }),
      chartText: Math.min(...all.filter((e) => e.localName === "text").map((e) => e.getBoundingClientRect().height)),
    };
  });
  assert.equal(got.scrollWidth, width, "the page overflows");
  assert.deepEqual(got.outside, [], "elements outside the viewport");
  assert.deepEqual(got.regions, [], "regions that are not accessible");
  assert.deepEqual(got.scrollers, [], "other elements that scroll");
  const size = width < 640 ? "narrow" : "wide";
  assert.deepEqual(got.charts, [size, size]);
  for (const labels of got.dayLabels) {
    for (const day of ["10-07", "10-27", "11-05"]) { // first, worst and last
      assert.ok(labels.includes(day), `${day} is not in ${labels}`);
    }
  }
  assert.deepEqual(got.overlaps, [], "texts that overlap in a chart");
  assert.deepEqual(got.shortLines, [], "cards that end in a short line");
  assert.ok(got.chartText >= 11, `text of ${got.chartText} px in a chart`);
}

async function checkColors(page, colorScheme) {
  const got = await page.evaluate(() => {
    const background = (e) => getComputedStyle(e).backgroundColor;
    const fills = (section) => [...document.querySelectorAll(`#${section} svg path`)]
      .map((e) => getComputedStyle(e).fill).filter((fill) => fill !== "none");
    return {
      ground: background(document.body),
      text: getComputedStyle(document.body).color,
      chartText: [...document.querySelectorAll("svg text")].map((e) => getComputedStyle(e).fill),
      legend: [...document.querySelectorAll(".legend li")].map((li) => [li.innerText.trim().replace(/: \d+$/, ""), background(li.querySelector("span"))]),
      bars: [...fills("days"), ...fills("errors"), ...[...document.querySelectorAll(".bar span")].map(background)],
    };
  });
  assert.equal(got.ground, { light: "rgb(255, 255, 255)", dark: "rgb(20, 24, 29)" }[colorScheme]);
  assert.deepEqual([...new Set(got.chartText)], [got.text]);
  assert.equal(got.legend.length, 3 + 1 + 3);
  for (const [label, color] of got.legend) {
    colorsByLabel[label] ??= color;
    assert.equal(color, colorsByLabel[label], label);
  }
  const known = Object.values(colorsByLabel);
  assert.equal(new Set(known).size, 3, "colours of three match results");
  assert.deepEqual([...new Set(got.bars)].sort(), known.sort());
}

async function checkKeyboard(page, width) {
  const focused = () => page.evaluate(() => {
    const e = document.activeElement;
    return e === document.body ? "" : e.getAttribute("aria-label") ?? e.innerText;
  });
  const tabToEnd = async () => {
    const names = [];
    for (;;) {
      await page.keyboard.press("Tab");
      const name = await focused();
      if (name === "" || names.includes(name)) return names;
      names.push(name);
    }
  };
  const [days, errors, rules] = ["Table: records of each day", "Table: error messages", "Table: all rules"];
  assert.deepEqual(await tabToEnd(), ["Show the numbers of each day", errors, rules]);
  await page.focus("summary");
  await page.keyboard.press("Enter");
  assert.deepEqual(await tabToEnd(), [days, errors, rules]);

  // The arrow keys reach the last column.
  const region = page.getByRole("region", { name: rules });
  await region.focus();
  assert.notEqual(await region.evaluate((e) => getComputedStyle(e).outlineStyle), "none", "the focus is not visible");
  const rest = () => region.evaluate((e) => e.scrollWidth - e.clientWidth - e.scrollLeft);
  assert.equal(await rest() > 1, width < 640, "only the narrow page scrolls");
  for (let presses = 0; await rest() > 1; presses++) {
    assert.ok(presses < 100, "the arrow keys do not scroll");
    await page.keyboard.press("ArrowRight");
  }
}

async function checkAxe(page) {
  // axe-core cannot determine the contrast of text on gradients.
  await page.addStyleTag({ content: ".scroll { background: none !important; }" });
  await page.evaluate(readFileSync(axe, "utf8"));
  const { violations, incomplete, passes } = await page.evaluate(() => window.axe.run());
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html.slice(0, 100)).join(" | ")}`), []);
  // It cannot determine the contrast of text in an SVG either: see checkColors.
  assert.deepEqual(incomplete.map((rule) => rule.id).filter((id) => id !== "color-contrast"), [], "rules that axe-core could not check");
  assert.ok(passes.some((rule) => rule.id === "color-contrast"), "axe-core checked nothing");
}
