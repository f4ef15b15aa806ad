// What the dashboard must do, in order, in one tab. See scripts/dashboard-test.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { agentsSteps, linkSteps } from "./lib/agents.mjs";
import { changesSteps } from "./lib/changes.mjs";
import { onStage, signIn, until } from "./lib/stage.mjs";

const MARKUP = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>";
// A file's name cannot hold a slash.
const NAME = MARKUP.replaceAll("/", "");
const BIG = Array.from({ length: 6000 }, (_, line) => `line ${line} <b onclick=alert(1)>of text</b> é`).join("\n") + "\n";

await onStage(async ({ root, server, browser }) => {
  writeFileSync(join(root, "small.txt"), "a small file\n");
  writeFileSync(join(root, "big.txt"), BIG);
  writeFileSync(join(root, "blob.bin"), Buffer.from(Array.from({ length: 4096 }, (_, at) => (at * 37) % 256)));
  writeFileSync(join(root, NAME), "marked\n");
  mkdirSync(join(root, "src"));
  writeFileSync(join(root, "src/lib.rs"), "/// Finds it.\npub fn needle_of_the_test() -> u32 {\n    7\n}\n");
  await server.start();

  const page = await browser.newPage();
  await page.setViewport({ width: 1440, height: 900 });
  let complaints = [];
  const asked = [];
  page.on("console", (message) => ["error", "warn", "warning"].includes(message.type()) && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("dialog", (dialog) => { complaints.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => asked.push(request.url()));
  const text = (selector) => page.$eval(selector, (node) => node.innerText);
  const figure = (name) => text(`[data-figure=${name}] .value`);
  const bars = () => page.$$eval(".bars", (all) => all.map((path) => path.getAttribute("d")).join("|"));
  const calls = () => page.$$eval("#calls tbody tr", (rows) => rows.length);

  // step NAME [complaints that belong to it] WORK
  async function step(name, expected, work) {
    await work();
    const others = complaints.filter((text) => !expected?.test(text));
    assert.deepEqual(others, [], `${name}: the console stays quiet`);
    complaints = [];
    console.log(`ok    ${name}`);
  }

  await step("loads and asks for the token", null, async () => {
    const response = await page.goto(`${server.url}/`);
    const policy = response.headers()["content-security-policy"];
    assert.match(policy, /default-src 'none'/);
    assert.doesNotMatch(policy, /unsafe|https?:|\*/);
    await until(page, "the form", () => document.activeElement?.id === "token");
    assert.equal(await page.$eval("#main", (node) => node.checkVisibility()), false);
  });

  await step("says that a wrong token is wrong", /401/, async () => {
    for (const wrong of ["nonsense", "naïve ☃"]) {
      await signIn(page, wrong);
      await until(page, "the refusal", () => document.querySelector("#refusal").textContent);
      assert.equal(await page.evaluate(() => sessionStorage.length), 0);
    }
    await signIn(page, "nonsense");
    await until(page, "the refusal", () => /not accepted/.test(document.querySelector("#refusal").textContent));
  });

  await step("authenticates, and keeps the token for this tab alone", null, async () => {
    await signIn(page, server.token);
    await until(page, "the stream", () => document.querySelector("#state").dataset.state === "on");
    const kept = await page.evaluate(() => [Object.values(sessionStorage), Object.values(localStorage), document.cookie]);
    assert.deepEqual(kept, [[server.token], ["auto"], ""]);
    await until(page, "the figures", () => document.querySelector("[data-figure=calls] .value")?.textContent === "0");
    assert.match(await text("#no-calls"), /No calls yet/);
  });

  await step("reports confinement", null, async () => {
    const { confinement } = await server.get("/health");
    assert.equal(await text("#walls .raw"), confinement);
  });

  let handle;
  await step("shows a call made over REST as it ends, and charts change", null, async () => {
    const before = await bars();
    await server.tool("read_file", { path: "small.txt" });
    // Marked as fresh: it came by the stream, not with a summary.
    await until(page, "the call", () => /read_file/.test(document.querySelector("#calls tbody tr.fresh")?.innerText));
    await until(page, "the count", () => document.querySelector("[data-figure=calls] .value").textContent === "1");
    await until(page, "the bars", () => document.querySelector(".bars.served")?.getAttribute("d"));
    const between = await bars();
    assert.notEqual(between, before, "the chart has changed");
    const answer = await server.tool("te_cat", { path: "big.txt" });
    handle = /"handle":"(res_\w+)"/.exec(JSON.stringify(answer.data).replaceAll("\\", ""))?.[1] ?? answer.meta.handle;
    assert.match(handle, /^res_/);
    await until(page, "what was withheld", () => document.querySelector(".bars.withheld")?.getAttribute("d"));
    assert.notEqual(await bars(), between, "and again");
    assert.match(await figure("kept"), /^[1-9]\d?(\.\d)? %$/);
    await until(page, "latencies", () => document.querySelectorAll(".latencies li").length === 2);
    await server.tool("read_file", { path: "gone.txt" });
    await until(page, "the error", () => /NOT_FOUND/.test(document.querySelector("#errors").innerText));
    assert.match(await text("#sessions"), /watched/);
  });

  await step("shows hostile names as text", null, async () => {
    await server.tool("read_file", { path: NAME }, MARKUP);
    await until(page, "the name", (name) => [...document.querySelectorAll("#calls .path")].some((node) => node.textContent === name), NAME);
    await until(page, "the session", (name) => document.querySelector("#sessions").textContent.includes(name), MARKUP);
    assert.equal(await page.$$eval("main img, main script, main b", (all) => all.length), 0);
    assert.doesNotMatch(await page.title(), /owned/);
  });

  await step("opens a stored result, page by page", null, async () => {
    await page.click(`#calls a[title="${handle}"]`);
    let joined = "";
    for (;;) {
      joined += await until(page, "the page", (seen) => {
        const [shown] = /[\d,]+/.exec(document.querySelector("#place").textContent) ?? [""];
        return Number(shown.replaceAll(",", "")) === seen + 1 && document.querySelector("#page").textContent;
      }, Buffer.byteLength(joined));
      if (await page.$eval("#later", (button) => button.disabled)) break;
      await page.click("#later");
    }
    assert.equal(joined, BIG, "the pages are the file, byte for byte");
    await page.click("#earlier");
    await until(page, "the page before", () => !document.querySelector("#later").disabled);
    assert.equal(await page.$$eval("#handles a", (all) => all.length), 1);
    assert.equal(await page.$eval("#handles a", (link) => link.getAttribute("aria-current")), "true");
  });

  await step("shows bytes that are no text", null, async () => {
    const { meta } = await server.tool("te_cat", { path: "blob.bin" });
    await page.evaluate((handle) => { location.hash = `#results/${handle}`; }, meta.handle);
    await until(page, "the bytes", () => document.querySelector("#page").textContent.startsWith("00000000  00 25 4a"));
  });

  await step("says when a result is gone", /410/, async () => {
    await page.evaluate(() => { location.hash = "#results/res_01ARZ3NDEKTSV4RRFFQ69G5FAV"; });
    await until(page, "the refusal", () => /handle/.test(document.querySelector("#about").textContent) && document.querySelector("#page").hidden);
  });

  await step("searches, or says that there is no index", null, async () => {
    await page.click("nav a[href='#search']");
    await page.type("#query", "needle_of_the_test");
    await page.keyboard.press("Enter");
    // Searching begins to build the index, so what health says of it may be old by now.
    await until(page, "an answer", () => /no code index|still being built|snippet/.test(document.querySelector("#found").textContent));
  });

  await step("lists the configuration with sources", null, async () => {
    await page.click("nav a[href='#server']");
    const { entries } = await server.get("/api/config");
    await until(page, "the settings", (count) => document.querySelectorAll("#entries tr").length === count, entries.length);
    await page.click("#changed");
    const set = await page.$$eval("#entries tr", (rows) => rows.map((row) => row.innerText.split("\t")));
    assert.ok(set.length > 0 && set.length < entries.length);
    const entry = entries.find(({ key }) => key === "mcp.limits.rate_limit_rps");
    assert.deepEqual(set.find(([key]) => key === entry.key), [entry.key, entry.value, entry.source]);
    await page.type("#filter", "no such thing");
    assert.equal(await page.$$eval("#entries tr", (rows) => rows.length), 0);
    assert.ok((await text("#facts")).includes(root));
  });

  await changesSteps({ page, root, server, step, NAME, MARKUP });
  await agentsSteps({ page, root, server, step, browser });

  await step("can be used from the keyboard", null, async () => {
    await page.click("nav a[href='#live']");
    await page.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
    const reached = new Set();
    for (let count = 0; count < 45; count += 1) {
      await page.keyboard.press("Tab");
      reached.add(await page.evaluate(() => {
        const at = document.activeElement;
        return at.id || at.hash?.split("/")[0] || at.dataset.minutes || at.getAttribute("class") || at.tagName;
      }));
    }
    for (const stop of ["#agents", "#calls", "#running", "#savings", "#changes", "#results", "#search", "#server", "theme", "leave", "60", "lanes", "pause"]) {
      assert.ok(reached.has(stop), `${stop} among ${[...reached]}`);
    }
    const whole = await text("#readout");
    await page.$eval(".lanes", (chart) => chart.focus());
    await page.keyboard.press("ArrowLeft");
    assert.notEqual(await text("#readout"), whole, "arrows read single moments");
  });

  await step("is light or dark as asked", null, async () => {
    const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "light" }]);
    const light = await ground();
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
    const dark = await ground();
    assert.notEqual(light, dark);
    await page.click("#theme");
    assert.equal(await ground(), light, "the switch wins");
    await page.click("#theme");
    assert.equal(await ground(), dark);
    await page.click("#theme");
    await page.emulateMediaFeatures([{ name: "prefers-reduced-motion", value: "reduce" }]);
    const moving = await page.$eval("#calls tbody tr", (row) => {
      row.className = "fresh";
      return getComputedStyle(row).animationName;
    });
    assert.equal(moving, "none");
  });

  await step("fits a phone and a wide screen", null, async () => {
    for (const width of [360, 768, 1024, 2560]) {
      await page.setViewport({ width, height: 800 });
      for (const view of ["agents", "calls", "running", "savings", "changes", "results", "search", "server", "live"]) {
        await page.evaluate((hash) => { location.hash = hash; }, `#${view}`);
        await until(page, view, (view) => document.querySelector(`#view-${view}`).checkVisibility(), view);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(over <= 0, `${view} at ${width} is ${over} pixels too wide`);
      }
    }
    await page.setViewport({ width: 1440, height: 900 });
  });

  await step("pauses and goes on", null, async () => {
    await page.click("#pause");
    const before = await calls();
    await server.tool("stat", { path: "small.txt" });
    await until(page, "one waiting", () => /1 waiting/.test(document.querySelector("#pause").textContent));
    assert.equal(await calls(), before);
    await page.click("#pause");
    await until(page, "the call", (count) => document.querySelectorAll("#calls tbody tr").length === count, before + 1);
  });

  await step("stays signed in over a reload", null, async () => {
    // The summary has the newest fifty.
    const before = Math.min(50, await calls());
    await page.reload();
    await until(page, "the calls so far", (count) => document.querySelectorAll("#calls tbody tr").length === count, before);
  });

  await step("comes back by itself when the server does", /ERR_|Failed to load|503/, async () => {
    await server.stop();
    await until(page, "that it is gone", () => document.querySelector("#state").dataset.state === "off");
    await server.start();
    await until(page, "the stream", () => document.querySelector("#state").dataset.state === "on");
    await server.tool("list_dir", { path: "." });
    await until(page, "the new call", () => /list_dir/.test(document.querySelector("#calls tbody tr").innerText));
  });

  await step("forgets the token", null, async () => {
    await page.click("#leave");
    assert.equal(await page.$eval("#enter", (form) => form.checkVisibility()), true);
    assert.deepEqual(await page.evaluate(() => [sessionStorage.length, document.querySelector("#calls tbody").children.length]), [0, 0]);
    const end = Date.now() + 10_000;
    while ((await server.get("/api/summary")).gauges.watchers > 0) assert.ok(Date.now() < end, "the stream is closed");
  });

  const on = () => until(page, "the stream", () => document.querySelector("#state").dataset.state === "on");
  const doors = [["under another header", 'mcp.auth.header="X-Other"', server.token], ["without tokens", 'mcp.auth.mode="none"', ""]];
  for (const [what, setting, token] of doors) {
    await step(`works ${what}`, /401/, async () => {
      await server.stop();
      await server.start("--set", setting);
      await page.goto(`${server.url}/`);
      await signIn(page, token);
      await on();
      await page.click("#leave");
    });
  }

  await step("asks this server alone, without the token in an address", null, async () => {
    assert.ok(asked.length > 10);
    for (const url of asked) {
      assert.equal(new URL(url).origin, server.url, url);
      assert.ok(!url.includes(server.token), url);
    }
  });

  await step("holds against injected markup", /Content Security Policy|Trusted/, async () => {
    const refused = await page.evaluate(async () => {
      const seen = [];
      document.addEventListener("securitypolicyviolation", (event) => seen.push(event.effectiveDirective));
      const inject = (tag, attributes) => document.body.append(Object.assign(document.createElement(tag), attributes));
      inject("img", { src: "http://other.invalid/x.png" });
      inject("style", { textContent: "body { display: none }" });
      await fetch("http://other.invalid/").catch(() => {});
      const tries = [
        () => { document.body.innerHTML = "<p>marked</p>"; },
        () => inject("script", { textContent: "document.title = 'owned'" }),
      ];
      for (const attempt of tries) try { attempt(); } catch (error) { seen.push(error.name); }
      while (seen.length < 5) await new Promise((done) => setTimeout(done, 20));
      return seen;
    });
    for (const directive of ["img-src", "style-src-elem", "connect-src", "require-trusted-types-for"]) {
      assert.ok(refused.includes(directive), `${directive} among ${refused}`);
    }
    assert.doesNotMatch(await page.title(), /owned/);
    assert.equal(await page.$eval("body", (body) => getComputedStyle(body).display), "block");
  });

  await server.stop();
  await linkSteps({ root, step, browser });
});
console.log("dashboard: all passed");
