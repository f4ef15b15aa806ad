// Streamable HTTP in front of a stdio MCP server, for the conformance suite, which speaks HTTP only.
//
//   node conformance-bridge.mjs COMMAND [ARG...]
//
// Prints the URL to test, serves loopback only, and ends with its children when its own stdin closes.
// A session of the older revisions gets a server process of its own; all requests of the stateless
// revision share one. Whatever is about HTTP alone (sessions, status codes, Host, Origin and MCP headers) is
// answered here and says nothing about the server; everything else is the server's own word, line by line.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';

const STATELESS = '2026-07-28';
const META = 'io.modelcontextprotocol/';
const [command, ...args] = process.argv.slice(2);
const sessions = new Map();
const children = new Set();
let shared;
let failed = false;

/** A violation no scenario would notice: said once, and remembered in the exit code. */
function fault(text) {
  failed = true;
  process.stderr.write(`bridge: ${text}\n`);
}

/** One server process. */
class Server {
  constructor() {
    this.child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    children.add(this.child);
    this.pending = new Map();
    this.lastId = 0;
    this.stream = undefined;
    this.child.stdin.on('error', () => {});
    this.child.on('error', (error) => {
      fault(`cannot start ${command}: ${error.message}`);
      process.exit(1);
    });
    this.child.on('exit', () => {
      children.delete(this.child);
      for (const exchange of this.pending.values()) exchange.res.destroy();
      this.pending.clear();
    });
    createInterface({ input: this.child.stdout }).on('line', (line) => this.#receive(line));
  }

  send(message) {
    this.child.stdin.write(JSON.stringify(message) + '\n');
  }

  /** Passes a request on under an id of our own, since the clients of a shared server reuse theirs. */
  request(message, exchange) {
    const id = ++this.lastId;
    exchange.id = message.id;
    exchange.token = message.params?._meta?.progressToken;
    this.pending.set(id, exchange);
    exchange.res.on('close', () => {
      if (this.pending.delete(id)) {
        this.send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id } });
      }
    });
    this.send({ ...message, id });
  }

  #receive(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      return fault(`not JSON on stdout: ${line.slice(0, 200)}`);
    }
    if (message.method === undefined) {
      const exchange = this.pending.get(message.id);
      if (!exchange) return fault(`answer to nothing: ${line.slice(0, 200)}`);
      this.pending.delete(message.id);
      return exchange.finish({ ...message, id: exchange.id });
    }
    const exchange = this.#origin(message);
    if (exchange) exchange.event(message);
    else if (this.stream) this.stream.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
  }

  /** stdio does not say which call a message belongs to; a token or the latest call has to do. */
  #origin(message) {
    const subscription = message.params?._meta?.[`${META}subscriptionId`];
    if (subscription !== undefined) {
      const exchange = this.pending.get(subscription);
      if (exchange) message.params._meta[`${META}subscriptionId`] = exchange.id;
      return exchange;
    }
    const token = message.params?.progressToken;
    const calls = [...this.pending.values()].reverse();
    return token === undefined ? calls[0] : calls.find((exchange) => exchange.token === token);
  }

  close() {
    this.child.stdin.end();
  }
}

/** One HTTP request that waits for its answer: plain JSON, or a stream once something precedes it. */
class Exchange {
  constructor(res, { sessionId, stateless }) {
    Object.assign(this, { res, sessionId, stateless });
  }

  event(message) {
    if (!this.res.headersSent) this.res.writeHead(200, this.#headers('text/event-stream'));
    this.res.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
  }

  finish(message) {
    if (this.res.headersSent) {
      this.event(message);
      this.res.end();
    } else {
      const status = this.stateless && message.error ? httpStatus(message.error.code) : 200;
      this.res.writeHead(status, this.#headers('application/json'));
      this.res.end(JSON.stringify(message));
    }
  }

  #headers(type) {
    return { 'Content-Type': type, ...(this.sessionId && { 'Mcp-Session-Id': this.sessionId }) };
  }
}

function httpStatus(code) {
  if (code === -32601) return 404;
  return [-32700, -32600, -32602, -32020, -32021, -32022].includes(code) ? 400 : 200;
}

function refuse(res, status, code, message, id = null) {
  res.writeHead(status, { 'Content-Type': 'application/json' });
  res.end(JSON.stringify({ jsonrpc: '2.0', id, error: { code, message } }));
}

function isLocal(host) {
  return /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/.test(host ?? '');
}

function handle(req, res, body) {
  const origin = req.headers.origin;
  if (!isLocal(req.headers.host) || (origin && !isLocal(origin.replace(/^https?:\/\//, '')))) {
    return refuse(res, 403, -32600, 'foreign Host or Origin');
  }
  const sessionId = req.headers['mcp-session-id'];
  const session = sessions.get(sessionId);
  if (sessionId && !session) return refuse(res, 404, -32600, 'no such session');
  if (req.method === 'GET' && session) {
    res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Mcp-Session-Id': sessionId });
    res.flushHeaders();
    session.stream = res;
    return;
  }
  if (req.method === 'DELETE' && session) {
    sessions.delete(sessionId);
    session.close();
    return res.writeHead(200).end();
  }
  if (req.method !== 'POST') return res.writeHead(405).end();

  const message = JSON.parse(body);
  const version = req.headers['mcp-protocol-version'];
  const stateless = version !== undefined && version >= STATELESS;
  const isRequest = message.method !== undefined && message.id !== undefined;
  if (stateless && isRequest) {
    const named = message.params?._meta?.[`${META}protocolVersion`];
    const name = message.params?.name ?? message.params?.uri;
    const header = req.headers['mcp-name'];
    if (
      (named !== undefined && named !== version) ||
      req.headers['mcp-method'] !== message.method ||
      (header !== undefined && name !== undefined && header !== name)
    ) {
      return refuse(res, 400, -32020, 'headers do not match the body', message.id);
    }
  }
  if (!stateless && !session && message.method === 'initialize') {
    const server = new Server();
    const id = randomUUID();
    sessions.set(id, server);
    return server.request(message, new Exchange(res, { sessionId: id }));
  }
  const server = session ?? (shared ??= new Server());
  if (isRequest) return server.request(message, new Exchange(res, { sessionId, stateless }));
  server.send(message);
  res.writeHead(202).end();
}

const http = createServer((req, res) => {
  const chunks = [];
  req.on('data', (chunk) => chunks.push(chunk));
  req.on('end', () => {
    try {
      handle(req, res, Buffer.concat(chunks).toString());
    } catch (error) {
      refuse(res, 400, -32700, String(error));
    }
  });
});
http.listen(0, '127.0.0.1', () => {
  process.stdout.write(`http://127.0.0.1:${http.address().port}/mcp\n`);
});

function end() {
  http.close();
  http.closeAllConnections();
  // A server has two seconds after the end of its input; one that takes longer is broken.
  const late = setTimeout(() => {
    for (const child of children) {
      fault(`server ${child.pid} did not end after its input did`);
      child.kill('SIGKILL');
    }
  }, 2500);
  late.unref();
  const waits = [...children].map((child) => new Promise((done) => child.on('exit', done)));
  for (const child of children) child.stdin.end();
  Promise.all(waits).then(() => process.exit(failed ? 1 : 0));
}
process.stdin.resume().on('end', end);
process.on('SIGTERM', end).on('SIGINT', end);
