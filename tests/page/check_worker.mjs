// Asks a model by worker.mjs, with a Worker of node in the browser's place, and without one.
// node check_worker.mjs LIVE SOURCE, a live model as JSON and the joined modules.
import fs from "node:fs";
import { Worker as Thread } from "node:worker_threads";

const page = new URL("../../flax_attn/page/", import.meta.url);
const { answering } = await import(new URL("engine/worker.mjs", page));
const live = JSON.parse(fs.readFileSync(process.argv[2]));
const source = fs.readFileSync(process.argv[3], "utf8");

const texts = new Map();
URL.createObjectURL = (blob) => {
  const address = `blob:${texts.size}`;
  texts.set(address, blob);
  return address;
};
const SCOPE = `const { parentPort } = require("node:worker_threads");
const self = { postMessage: (data) => parentPort.postMessage(data) };
parentPort.on("message", (data) => self.onmessage({ data }));
`;

/** What a browser's Worker does, by a thread of node. */
class BlobWorker {
  constructor(address) {
    BlobWorker.count += 1;
    this.thread = texts.get(address).text().then((text) => {
      const thread = new Thread(SCOPE + text, { eval: true });
      thread.on("message", (data) => this.onmessage({ data }));
      thread.on("error", () => this.onerror({ preventDefault() {} }));
      return thread;
    });
  }
  postMessage(data) {
    this.thread.then((thread) => thread.postMessage(data));
  }
  terminate() {
    this.thread.then((thread) => thread.terminate());
  }
}

const request = (scale, settings = {}) => {
  const { shape } = live.inputs[0];
  const size = shape.reduce((product, n) => product * n, 1);
  const data = Array.from({ length: size }, (_, i) => scale * Math.sin(i));
  return { inputs: { inputs: { shape, data } }, settings };
};

/** The replies to 70 requests made at once, and the order in which they came. */
async function round(text) {
  BlobWorker.count = 0;
  const ask = answering(live, text);
  const order = [];
  const asked = Array.from({ length: 70 }, (_, i) =>
    ask(request(i)).then((reply) => {
      if (!reply.error) order.push(i);
      return reply;
    }),
  );
  const replies = await Promise.all(asked);
  const wrong = await ask(request(1, { normalizer: "none" }));
  const outputs = (i) => replies[i].outputs?.data ?? null;
  const refused = replies.flatMap((reply, i) => (reply.error ? [i] : []));
  return { order, refused, last: outputs(69), wrong: wrong.error, made: BlobWorker.count };
}

const result = {};
result.without = await round(source);
globalThis.Worker = BlobWorker;
result.within = await round(source);
result.broken = await round("throw new Error('broken');");
process.stdout.write(JSON.stringify(result), () => process.exit());
