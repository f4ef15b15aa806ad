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

// An agent's own server over stdio, with the client's side of MCP.
export class StdioServer {
  constructor(root, name) {
    Object.assign(this, { root, name, id: 0, waiting: new Map() });
  }

  get pid() {
    return this.process.pid;
  }

  async start() {
    const args = ["mcp", "--root", this.root, "--mode", "classic", "--log-level", "error"];
    this.process = spawn(LLMC, args, { stdio: ["pipe", "pipe", "ignore"], env: { PATH: process.env.PATH, HOME: process.env.HOME } });
    createInterface({ input: this.process.stdout }).on("line", (line) => {
      const message = JSON.parse(line);
      this.waiting.get(message.id)?.(message);
      this.waiting.delete(message.id);
    });
    await this.request("initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: this.name, version: "1.0" } });
    this.send({ method: "notifications/initialized" });
  }

  send(message) {
    this.process.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  request(method, params) {
    const id = (this.id += 1);
    const answer = new Promise((done) => this.waiting.set(id, done));
    this.send({ id, method, params });
    return answer;
  }

  // The text that a model would read.
  async call(name, args) {
    const { result, error } = await this.request("tools/call", { name, arguments: args });
    return error ? JSON.stringify(error) : result.content.map(({ text }) => text ?? "").join("\n");
  }

  async stop() {
    if (!this.process || this.process.exitCode !== null || this.process.signalCode) return;
    const ended = once(this.process, "exit");
    this.process.stdin.end();
    await ended;
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
