// make.js - writes cases.json: small tokenizer.json files of each shape that skein reads, and what
// Hugging Face's library makes of nasty texts.  Run where `npm install tokenizers@0.23.2` was done:
//   node .../make.js > .../cases.json
const {Tokenizer} = require(process.cwd() + '/node_modules/tokenizers');

const corpus = 'the low lower lowest newer  wider café naïve e\u0301te\u0301 don\'t we\'ll 1234 5678 ' +
  'for (i = 0; i < n; i++)\n    return the lowest;\n\nÄnderung Größe 日本語 日本 한국어 \u{1f600} \u{1f600}';
const qwen2 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" +
  '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';

// The n pairs that are found most often, one after the other.
function train(words, n) {
  const merges = [];
  while (merges.length < n) {
    const count = {};
    for (const w of words)
      for (let i = 0; i + 1 < w.length; i++) count[w[i] + ' ' + w[i + 1]] = (count[w[i] + ' ' + w[i + 1]] || 0) + 1;
    const best = Object.keys(count).sort((x, y) => count[y] - count[x] || (x < y ? -1 : 1))[0];
    if (!best) break;
    const [a, b] = best.split(' ');
    merges.push([a, b]);
    for (const w of words)
      for (let i = 0; i + 1 < w.length; i++) if (w[i] === a && w[i + 1] === b) w.splice(i, 2, a + b);
  }
  return merges;
}

const signs = [];
for (let b = 0, extra = 256; b < 256; b++)
  signs.push(String.fromCharCode((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174 ? b : extra++));

function file(first, merges, specials, model, rest) {
  const vocab = {}, next = () => Object.keys(vocab).length;
  for (const s of [...first, ...merges.map(m => m.join(''))]) if (!(s in vocab)) vocab[s] = next();
  let id = next();
  const added_tokens = specials.map(([content, flags]) => ({
    id: content in vocab ? vocab[content] : id++, content, single_word: false, lstrip: false, rstrip: false,
    normalized: false, special: true, ...flags}));
  const template = {type: 'TemplateProcessing', single: [{SpecialToken: {id: 'B', type_id: 0}}, {Sequence: {id: 'A', type_id: 0}}],
    pair: [{Sequence: {id: 'A', type_id: 0}}, {Sequence: {id: 'B', type_id: 1}}],
    special_tokens: {B: {id: 'B', ids: [added_tokens[0].id], tokens: [added_tokens[0].content]}}};
  return {version: '1.0', truncation: null, padding: null, added_tokens, normalizer: null, pre_tokenizer: null,
    post_processor: template, decoder: null, ...rest,
    model: {type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null,
      fuse_unk: false, byte_fallback: false, ignore_merges: false, ...model, vocab, merges}};
}

const level = {type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false};
const bytes = (model, rest) => file(signs,
  train(corpus.match(/ ?\S+|\s+/g).map(w => [...Buffer.from(w)].map(b => signs[b])), 60),
  [['<|begin|>'], ['<|endoftext|>'], ['\u00e9t\u00e9<x>', {normalized: true, special: false}]], model,
  {decoder: level, ...rest, pre_tokenizer: {type: 'Sequence', pretokenizers: [{type: 'Split', pattern: {Regex: qwen2},
    behavior: 'Isolated', invert: false}, level]}});

const hex = [];
for (let b = 0; b < 256; b++) hex.push('<0x' + b.toString(16).toUpperCase().padStart(2, '0') + '>');
const back = {type: 'Sequence', decoders: [{type: 'Replace', pattern: {String: '▁'}, content: ' '}, {type: 'ByteFallback'},
  {type: 'Fuse'}, {type: 'Strip', content: ' ', start: 1, stop: 0}]};
const pieces = (fallback, model, rest, flags) => {
  const words = (' ' + corpus).replace(/ /g, '▁').match(/▁*[^▁]+/g).map(w => [...w]);
  const chars = [...new Set('▁abcdefghilmnorstuvw.,\'é日本'.split(''))];
  return file(['<unk>', '<s>', '</s>', ...fallback, ...chars],
    train(words.map(w => w.filter(c => chars.includes(c))), 60),
    [['<s>'], ['<unk>', flags], ['</s>', flags], ['low bar', flags]],
    {unk_token: '<unk>', ...model}, {decoder: back, ...rest});
};
const meta = (prepend_scheme, split) => ({pre_tokenizer: {type: 'Metaspace', replacement: '▁', prepend_scheme, split}});
const steps = {normalizer: {type: 'Sequence', normalizers: [{type: 'Prepend', prepend: '▁'},
  {type: 'Replace', pattern: {String: ' '}, content: '▁'}]}};

const files = {
  qwen2: bytes({}, {normalizer: {type: 'NFC'}, post_processor: level}),
  llama3: bytes({ignore_merges: true}, {}),
  llama2: pieces(hex, {fuse_unk: true, byte_fallback: true}, steps),
  'llama2 of old': pieces(hex, {fuse_unk: true, byte_fallback: true}, steps, {normalized: true}),
  mistral: pieces(hex, {fuse_unk: true, byte_fallback: true}, meta('first', false)),
  'unk, always': pieces([], {}, meta('always', true)),
  'fused unk, never': pieces(hex.filter((_, b) => b % 7 !== 3), {fuse_unk: true, byte_fallback: true, ignore_merges: true}, meta('never', false)),
};
const texts = ['', ' ', 'the low', ' the  lowest   newer\n\n\tlow', 'cafe\u0301 café e\u0301te\u0301<x> éte\u0301<x>', '한국어 \u1112\u1161\u11ab \uac00\u11a7',
  '日本語 zz日zz本\u{1f600}\u{1f600}', 'low bar<s>low bar low bar</s>the', '<s>the', '</s> the <unk>', '▁<unk>▁low', '<0x0A>\r\n\0\x1b\x7f',
  'a\u0327\u0301 a\u0301\u0327 \u212b \u0958 \u2adc\u0338', "WE'LL don'T 12345 'ſ", '\u180e\u180ex \u3000y\u2028z \u0085', '<|begin|>the<|endoftext|>', 'for (i = 0)\n    return',
  '\u{1f468}\u200d\u{1f469}\u200d\u{1f467}\ufe0f \u{e0100}', 'x\u0897\u0301\u{1e4ec}\u0327', 'loooow▁▁▁lower', '%%é%%'];
const plain = ['naïve \u2013 \u201ccafé\u201d\u2026', '中文测试 日本', '\ud55c\uad6d \u{1f600}\u{1f680}']; // in NFC: no library is needed
(async () => {
  const out = [];
  for (const [name, json] of Object.entries(files)) {
    const t = Tokenizer.fromString(JSON.stringify(json)), cases = [];
    for (const text of [...texts, ...plain]) {
      const ids = (await t.encode(text)).getIds();
      cases.push({text, ids, back: ids.length ? await t.decode(ids, false) : '', ...(plain.includes(text) ? {plain: true} : {})});
    }
    out.push(JSON.stringify({name, tokenizer: json, cases: 0}).replace(/0}$/, '[\n' + cases.map(c => JSON.stringify(c)).join(',\n') + ']}'));
  }
  console.log('[' + out.join(',\n') + ']');
})();
