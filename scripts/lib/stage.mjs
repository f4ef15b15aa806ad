// A server in a workspace of its own, and a browser that notes everything it asks for and complains about.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const { CHROMIUM, LLMC, NODE_TOOLS } = process.env;
const DEADLINE_MS = 20_000;

export class Server {
  constructor(root) {
    this.root = root;
    this.port = 0;
  }

  // Again on the same port when it has been up before.
  async start(...flags) {
    const limits = ["--set", "mcp.limits.rate_limit_rps=1000", "--set", "mcp.limits.rate_limit_burst=1000"];
    const args = ["serve", "--root", this.root, "--port", String(this.port), ...limits, ...flags];
    this.process = spawn(LLMC, args, { stdio: ["ignore", "ignore", "pipe"], env: { PATH: process.env.PATH, HOME: process.env.HOME } });
    const lines = createInterface({ input: this.process.stderr });
    this.url = await new Promise((found, failed) => {
      let last = "";
      lines.on("line", (line) => {
        last = line;
        const url = /"msg":"listening","url":"([^"]+)"/.exec(line)?.[1];
        if (url) found(url);
      });
      this.process.once("exit", (code) => failed(new Error(`the server ended with ${code}: ${last}`)));
      this.process.once("error", failed);
    });
    this.port = Number(new URL(this.url).port);
    this.token = readFileSync(join(this.root, ".llmc/token"), "utf8").trim();
  }

  async stop() {
    if (!this.process || this.process.exitCode !== null) return;
    const ended = once(this.process, "exit");
    this.process.kill("SIGTERM");
    await ended;
  }

  async get(path) {
    return (await fetch(this.url + path, { headers: { "X-LLMC-Token": this.token } })).json();
  }

  async post(path, body, headers = {}) {
    const all = { "X-LLMC-Token": this.token, "Content-Type": "application/json", ...headers };
    return (await fetch(this.url + path, { method: "POST", headers: all, body: JSON.stringify(body) })).json();
  }

  tool(name, args, session_id = "watched") {
    return this.post("/tool", { name, args, session_id });
  }
}

// Runs with a workspace, a server and a browser, and ends all of them whatever happens.
export async function onStage(run) {
  const folder = mkdtempSync(join(tmpdir(), "llmc-dashboard."));
  const root = join(folder, "workspace");
  mkdirSync(root);
  const server = new Server(root);
  let browser;
  try {
    const { default: puppeteer } = await import(createRequire(`${NODE_TOOLS}/`).resolve("puppeteer-core"));
    // Chromium's own sandbox does not work for root; the page is ours and the browser ends with this script.
    const args = ["--disable-dev-shm-usage", "--no-first-run", ...(process.getuid() === 0 ? ["--no-sandbox"] : [])];
    browser = await puppeteer.launch({ executablePath: CHROMIUM, headless: true, args });
    await run({ root, server, browser });
  } finally {
    await browser?.close();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

// Waits until the function, run in the page, returns something true, and returns that.
export async function until(page, what, check, ...args) {
  const end = Date.now() + DEADLINE_MS;
  for (;;) {
    const value = await page.evaluate(check, ...args);
    if (value) return value;
    if (Date.now() > end) {
      const text = await page.evaluate(() => document.body.innerText);
      throw new Error(`waited in vain for ${what}; the page says:\n${text.slice(0, 3000)}`);
    }
    await new Promise((done) => setTimeout(done, 40));
  }
}

export async function signIn(page, token) {
  await until(page, "the question for the token", () => !document.querySelector("#enter").hidden);
  await page.evaluate(() => { document.querySelector("#token").value = ""; });
  await page.type("#token", token);
  await page.keyboard.press("Enter");
}
