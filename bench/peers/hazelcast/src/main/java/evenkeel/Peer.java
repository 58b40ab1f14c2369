package evenkeel;

import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.config.Config;
import com.hazelcast.core.Hazelcast;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.map.IMap;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.SplittableRandom;
import java.util.StringJoiner;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.HistogramIterationValue;
import org.HdrHistogram.SingleWriterRecorder;

/**
 * Hazelcast's part of {@code evenkeel bench map-test}: its member, and the map test over its own client.
 *
 * <pre>
 *  member --port=N --dir=DIR     serves on 127.0.0.1, alone; makes the file DIR/ready when it does
 *  client --port=N --threads=N --key-length=N --value-length=N --key-count=N --value-count=N --put-probability=SHARE
 *         --key-locality=random|local|single --warm-up-ms=N --duration-ms=N --interval-ms=N --probe-rate=N
 *         --connect-timeout-ms=N --request-timeout-ms=N
 *                                fills a map, loads it for the warm-up, prints the line `measuring`, loads it for the
 *                                duration, prints a line of JSON; ends when its input does
 * </pre>
 *
 * As in the report of 2015 all threads share one client. The load is that of the engine in crates/bench/src/drive: closed
 * loops, latencies in histograms of the same bounds, and a probe that asks at fixed times, whose latencies count from the
 * planned time. A thread that fails ends: what failed is counted, and the run is no figure.
 */
public final class Peer {
    private static final String MAP = "map-test";
    /** Latencies from 1 ns to an hour, with three digits, as the engine's. */
    private static final long LATENCY_NS_MAX = 3_600_000_000_000L;
    private static final int DIGITS = 3;

    private Peer() {}

    public static void main(String[] words) throws Exception {
        Logger.getLogger("").setLevel(Level.WARNING);
        Options options = new Options(words);
        switch (words.length == 0 ? "" : words[0]) {
            case "member" -> startMember(options);
            case "client" -> {
                endWithInput();
                System.out.println(new MapTest(options).run());
                System.out.flush();
                // The client's threads need no farewell; the member is ended by who started it.
                Runtime.getRuntime().halt(0);
            }
            default -> throw new IllegalArgumentException("want member or client");
        }
    }

    private static void startMember(Options options) throws IOException {
        Config config = new Config();
        config.setProperty("hazelcast.logging.type", "jdk");
        config.setProperty("hazelcast.phone.home.enabled", "false");
        config.setProperty("hazelcast.socket.bind.any", "false");
        var network = config.getNetworkConfig().setPort((int) options.number("port")).setPortAutoIncrement(false);
        network.getInterfaces().setEnabled(true).addInterface("127.0.0.1");
        network.getJoin().getAutoDetectionConfig().setEnabled(false);
        network.getJoin().getMulticastConfig().setEnabled(false);
        Hazelcast.newHazelcastInstance(config);
        Files.createFile(Path.of(options.text("dir"), "ready"));
    }

    /** Ends this process when its input ends: nobody is left to read what it measures. */
    private static void endWithInput() {
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (IOException gone) {
                // The same as its end.
            }
            Runtime.getRuntime().halt(1);
        });
        watch.setDaemon(true);
        watch.start();
    }

    /** {@code --name=value}. */
    private static final class Options {
        private final Map<String, String> all = new LinkedHashMap<>();

        Options(String[] words) {
            for (int index = 1; index < words.length; index++) {
                String[] parts = words[index].split("=", 2);
                if (!parts[0].startsWith("--") || parts.length < 2) {
                    throw new IllegalArgumentException("want --name=value, not " + words[index]);
                }
                all.put(parts[0].substring(2), parts[1]);
            }
        }

        String text(String name) {
            String value = all.get(name);
            if (value == null) {
                throw new IllegalArgumentException("want --" + name + "=value");
            }
            return value;
        }

        long number(String name) {
            return Long.parseLong(text(name));
        }

        String json() {
            StringJoiner fields = new StringJoiner(",", "{", "}");
            all.forEach((name, value) -> fields.add(quoted(name) + ":" + quoted(value)));
            return fields.toString();
        }
    }

    /** The test of one client. */
    private static final class MapTest {
        private final Options options;
        private final int threads;
        private final double putProbability;
        private final String locality;
        private final String[] keys;
        private final String[] values;
        private final IMap<String, String> map;

        MapTest(Options options) {
            this.options = options;
            threads = (int) options.number("threads");
            putProbability = Double.parseDouble(options.text("put-probability"));
            locality = options.text("key-locality");
            keys = new String[(int) options.number("key-count")];
            for (int index = 0; index < keys.length; index++) {
                keys[index] = String.format("%0" + options.number("key-length") + "d", index);
            }
            values = new String[(int) options.number("value-count")];
            Random random = new Random(1);
            for (int index = 0; index < values.length; index++) {
                StringBuilder value = new StringBuilder();
                random.ints(options.number("value-length"), '!', '!' + 90).forEach(value::appendCodePoint);
                values[index] = value.toString();
            }
            map = connect(options).getMap(MAP);
        }

        private static HazelcastInstance connect(Options options) {
            ClientConfig config = new ClientConfig();
            config.setProperty("hazelcast.logging.type", "jdk");
            long requestMs = options.number("request-timeout-ms");
            if (requestMs > 0) {
                String seconds = Long.toString(Math.max(1, requestMs / 1000));
                config.setProperty("hazelcast.client.invocation.timeout.seconds", seconds);
            }
            config.getNetworkConfig().addAddress("127.0.0.1:" + options.number("port"));
            long connectMs = options.number("connect-timeout-ms");
            config.getConnectionStrategyConfig().getConnectionRetryConfig().setClusterConnectTimeoutMillis(connectMs);
            return HazelcastClient.newHazelcastClient(config);
        }

        /** Returns a line of JSON. */
        String run() throws InterruptedException {
            for (int index = 0; index < keys.length; index++) {
                map.set(keys[index], values[index % values.length]);
            }
            load(options.number("warm-up-ms"));
            System.out.println("measuring");
            List<Outcome> outcomes = load(options.number("duration-ms"));
            Outcome ofMap = outcomes.get(0);
            Outcome ofProbe = outcomes.get(1);
            long errors = ofMap.errors + ofProbe.errors;
            long lost = ofMap.missing + ofProbe.missing;
            Histogram all = ofMap.all();
            return "{\"experiment\":\"map-test\",\"server\":\"hazelcast\",\"operations_per_second\":"
                    + all.getTotalCount() * 1e9 / Math.max(1, ofMap.tookNs)
                    + ",\"latency_us\":{\"p50\":" + us(all, 50) + ",\"p99\":" + us(all, 99) + ",\"p999\":" + us(all, 99.9)
                    + ",\"max\":" + us(all, 100) + "},\"errors\":" + errors + ",\"lost\":" + lost + ",\"valid\":"
                    + (errors == 0 && lost == 0 && all.getTotalCount() > 0) + ",\"settings\":" + options.json()
                    + ",\"map\":" + ofMap.json() + ",\"probe\":" + ofProbe.json() + "}";
        }

        /** Loads the map for so long; what the threads came to, and the probe. */
        private List<Outcome> load(long durationMs) throws InterruptedException {
            long start = System.nanoTime();
            long end = start + TimeUnit.MILLISECONDS.toNanos(durationMs);
            List<Asker> workers = new ArrayList<>();
            for (int number = 0; number < threads; number++) {
                workers.add(new Worker(number, end));
            }
            List<Asker> probes = new ArrayList<>();
            if (options.number("probe-rate") > 0) {
                probes.add(new Probe(start, end));
            }
            workers.forEach(Thread::start);
            probes.forEach(Thread::start);
            List<Outcome> outcomes = List.of(new Outcome(workers, start), new Outcome(probes, start));
            long step = TimeUnit.MILLISECONDS.toNanos(options.number("interval-ms"));
            for (long at = start + step; end - at > 0; at += step) {
                sleepUntil(at);
                outcomes.forEach(Outcome::addRow);
            }
            for (Outcome outcome : outcomes) {
                outcome.finish();
            }
            return outcomes;
        }

        /** A thread that asks, and what it was answered. */
        private abstract class Asker extends Thread {
            final SingleWriterRecorder recorder = new SingleWriterRecorder(1, LATENCY_NS_MAX, DIGITS);
            final SplittableRandom random = new SplittableRandom();
            final long end;
            long found;
            long missing;
            long written;
            long errors;
            String failure;
            long finished;

            Asker(long end) {
                this.end = end;
            }

            abstract void ask();

            @Override
            public void run() {
                try {
                    ask();
                } catch (Throwable error) {
                    errors++;
                    failure = error.toString();
                }
                finished = System.nanoTime();
            }

            void get(String key) {
                if (map.get(key) != null) {
                    found++;
                } else {
                    missing++;
                }
            }

            /** Records what began at {@code from}, and returns when it ended. */
            long answered(long from) {
                long now = System.nanoTime();
                recorder.recordValue(Math.min(Math.max(1, now - from), LATENCY_NS_MAX));
                return now;
            }
        }

        /** Gets and puts, one after the other. */
        private final class Worker extends Asker {
            private final int first;
            private final int count;

            Worker(int number, long end) {
                super(end);
                int share = Math.max(1, keys.length / threads);
                switch (locality) {
                    case "local" -> {
                        first = number * share % keys.length;
                        count = share;
                    }
                    case "single" -> {
                        first = 0;
                        count = 1;
                    }
                    default -> {
                        first = 0;
                        count = keys.length;
                    }
                }
            }

            @Override
            void ask() {
                long now = System.nanoTime();
                while (end - now > 0) {
                    String key = keys[(first + random.nextInt(count)) % keys.length];
                    if (putProbability > 0 && random.nextDouble() < putProbability) {
                        map.set(key, values[random.nextInt(values.length)]);
                        written++;
                    } else {
                        get(key);
                    }
                    now = answered(now);
                }
            }
        }

        /** Gets at times that are fixed in advance. */
        private final class Probe extends Asker {
            private final long start;

            Probe(long start, long end) {
                super(end);
                this.start = start;
            }

            @Override
            void ask() {
                double rate = options.number("probe-rate");
                for (long index = 0; ; index++) {
                    long due = start + (long) (index * 1e9 / rate);
                    if (end - due <= 0) {
                        return;
                    }
                    sleepUntil(due);
                    get(keys[random.nextInt(keys.length)]);
                    answered(due);
                }
            }
        }

        /** What threads came to together: counts, and a histogram for each interval. */
        private static final class Outcome {
            private final List<Asker> askers;
            private final List<String> rows = new ArrayList<>();
            private final Histogram all = new Histogram(1, LATENCY_NS_MAX, DIGITS);
            private final Histogram row = new Histogram(1, LATENCY_NS_MAX, DIGITS);
            private Histogram part;
            private final long start;
            private long rowStart;
            private long tookNs;
            private long errors;
            private long missing;

            Outcome(List<Asker> askers, long start) {
                this.askers = askers;
                this.start = start;
                rowStart = start;
            }

            /** Takes what was answered since the last row. */
            void addRow() {
                addRow(System.nanoTime());
            }

            private void addRow(long now) {
                row.reset();
                for (Asker asker : askers) {
                    part = asker.recorder.getIntervalHistogram(part, false);
                    row.add(part);
                }
                all.add(row);
                StringJoiner latencies = new StringJoiner(",", "[", "]");
                for (HistogramIterationValue value : row.recordedValues()) {
                    latencies.add("[" + value.getValueIteratedTo() + "," + value.getCountAtValueIteratedTo() + "]");
                }
                rows.add("{\"at_us\":" + (now - start) / 1000 + ",\"length_us\":" + (now - rowStart) / 1000
                        + ",\"answered\":" + row.getTotalCount() + ",\"latencies_ns\":" + latencies + "}");
                rowStart = now;
            }

            /** Waits for the threads, and takes the rest. */
            void finish() throws InterruptedException {
                long last = rowStart;
                for (Asker asker : askers) {
                    asker.join();
                    last = asker.finished - last > 0 ? asker.finished : last;
                    errors += asker.errors;
                    missing += asker.missing;
                }
                addRow(last);
                tookNs = last - start;
            }

            Histogram all() {
                return all;
            }

            String json() {
                String failure = askers.stream().map(asker -> asker.failure).filter(text -> text != null).findFirst()
                        .map(Peer::quoted).orElse("null");
                return "{\"found\":" + askers.stream().mapToLong(asker -> asker.found).sum()
                        + ",\"missing\":" + missing
                        + ",\"written\":" + askers.stream().mapToLong(asker -> asker.written).sum()
                        + ",\"errors\":" + errors + ",\"failure\":" + failure
                        + ",\"took_us\":" + tookNs / 1000
                        + ",\"rows\":[" + String.join(",", rows) + "]}";
            }
        }
    }

    private static void sleepUntil(long time) {
        for (long left = time - System.nanoTime(); left > 0; left = time - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    private static double us(Histogram histogram, double percentile) {
        return histogram.getValueAtPercentile(percentile) / 1e3;
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c < ' ' || c == '"' || c == '\\') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
