// Asks the program fakeserver for each of its faults, as a test in JavaScript would.
import assert from 'node:assert';

// Returns how a request with this fault ends.
async function call(fault) {
  const url = `${process.env.MSGPUSH_BASE_URL}/api/open/mail/detail?mailId=101`;
  const headers = { 'access-key': process.env.MSGPUSH_ACCESS_KEY, 'Fakeserver-Fault': fault };
  try {
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(500) });
    if (response.status !== 200) return `${response.status} ${response.headers.get('Retry-After')}`;
    return (await response.text()).slice(0, 11);
  } catch (error) {
    return error.cause?.code ?? error.name;
  }
}

const wants = {
  'status:503': '503 null',
  'status:503:2': '503 2',
  'delay:10ms': '{"code":200',
  'delay:1m': 'TimeoutError',
  reset: 'ECONNRESET',
  truncate: 'UND_ERR_SOCKET',
  html: '<!DOCTYPE h',
  'rejected-key': '{"code":401',
};
for (const [fault, want] of Object.entries(wants)) {
  assert.equal(await call(fault), want, fault);
}
