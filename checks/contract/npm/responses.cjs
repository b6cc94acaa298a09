// Reads responses from standard input, as JSON: [{operationId, method, path, body}, …], all with
// HTTP 200. Prints for each whether express-openapi-validator and openapi-backend accept it
// as a response of its operation in openapi.json: [{express, backend}, …], each null or the
// reason.
'use strict';

const express = require('express');
const { middleware } = require('express-openapi-validator');
const { OpenAPIBackend } = require('openapi-backend');
const { readFileSync } = require('node:fs');

const file = process.argv[2];
const cases = JSON.parse(readFileSync(0, 'utf8'));

async function main() {
  const backend = new OpenAPIBackend({ definition: file, ajvOpts: { strict: false } });
  await backend.init();

  let body;
  const app = express();
  app.use(express.json());
  app.use(middleware({ apiSpec: file, validateRequests: false, validateSecurity: false, validateResponses: true }));
  app.use((request, response) => response.status(200).json(body));
  app.use((error, request, response, next) => response.status(500).json({ code: 0, msg: error.message }));
  const server = app.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.on('listening', resolve));
  const base = `http://127.0.0.1:${server.address().port}`;

  const results = [];
  for (const { operationId, method, path, body: wanted } of cases) {
    body = wanted;
    const init = { method, headers: { 'content-type': 'application/json', 'access-key': 'test-key' } };
    if (method === 'POST') init.body = '{}';
    const response = await fetch(base + path, init);
    const { errors } = backend.validateResponse(wanted, operationId, 200);
    results.push({
      express: response.status === 200 ? null : await response.text(),
      backend: errors ? JSON.stringify(errors) : null,
    });
  }
  server.close();
  console.log(JSON.stringify(results));
}

main();
