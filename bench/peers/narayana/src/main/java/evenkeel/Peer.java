package evenkeel;

import com.arjuna.ats.arjuna.common.ObjectStoreEnvironmentBean;
import com.arjuna.ats.arjuna.common.arjPropertyManager;
import com.arjuna.ats.internal.arjuna.objectstore.ShadowNoFileLockStore;
import com.arjuna.ats.internal.arjuna.objectstore.VolatileStore;
import com.arjuna.ats.internal.arjuna.objectstore.hornetq.HornetqJournalEnvironmentBean;
import com.arjuna.ats.internal.arjuna.objectstore.hornetq.HornetqObjectStoreAdaptor;
import com.arjuna.ats.jta.TransactionManager;
import com.arjuna.common.internal.util.propertyservice.BeanPopulator;
import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import java.util.logging.Level;
import java.util.logging.Logger;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.HistogramIterationValue;
import org.apache.activemq.artemis.core.io.aio.AIOSequentialFileFactory;

/**
 * Narayana's part of {@code evenkeel bench tx}: empty transactions over two resources that answer at once.
 *
 * <pre>
 *  --store=volatile|file|journal|journal-aio --tuned=true|false --dir=DIR --threads=N --warm-up-ms=N --duration-ms=N
 *           commits with so many threads for the warm-up, then for the duration; prints a line of JSON; ends when its input does
 * </pre>
 *
 * The stores are VolatileStore, ShadowNoFileLockStore (the default) and HornetqObjectStoreAdaptor, over files or Linux asynchronous
 * I/O. Untuned, nothing of them is set but where they are. Tuned, of the journal: deletes are not synced ({@code syncDeletes=false}: one
 * synced wait a transaction instead of two), 500 writes may be under way instead of 2 ({@code maxIO}, with asynchronous I/O), and the
 * timer that gathers records ({@code bufferFlushesPerSecond}) is off for one thread and ten times as quick as by default for several.
 * Where the status of transactions is asked from outside (a socket and a thread) is switched off in any case.
 *
 * A latency is from the call of commit until it returned, as in crates/bench/src/tx. A commit that throws ends its thread: what
 * failed is counted, and the run is no figure.
 */
public final class Peer {
    /** Latencies from 1 ns to an hour, with three digits, as our own. */
    private static final long LATENCY_NS_MAX = 3_600_000_000_000L;
    private static final int DIGITS = 3;

    private static volatile boolean measures;
    private static volatile boolean ends;

    private Peer() {}

    public static void main(String[] words) throws Exception {
        Logger.getLogger("").setLevel(Level.SEVERE);
        Options options = new Options(words);
        endWithInput();
        configure(options);
        System.out.println(run(options));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void configure(Options options) throws Exception {
        arjPropertyManager.getCoreEnvironmentBean().setNodeIdentifier("bench");
        arjPropertyManager.getCoordinatorEnvironmentBean().setTransactionStatusManagerEnable(false);
        String store = options.text("store");
        String type = switch (store) {
            case "volatile" -> VolatileStore.class.getName();
            case "file" -> ShadowNoFileLockStore.class.getName();
            case "journal", "journal-aio" -> HornetqObjectStoreAdaptor.class.getName();
            default -> throw new IllegalArgumentException("no store " + store);
        };
        String dir = options.text("dir");
        for (String name : new String[] {null, "stateStore", "communicationStore"}) {
            var bean = name == null
                    ? BeanPopulator.getDefaultInstance(ObjectStoreEnvironmentBean.class)
                    : BeanPopulator.getNamedInstance(ObjectStoreEnvironmentBean.class, name);
            bean.setObjectStoreDir(Path.of(dir, name == null ? "actions" : name).toString());
            // What is not the log of transactions is not written here.
            bean.setObjectStoreType(name == null ? type : VolatileStore.class.getName());
        }
        HornetqJournalEnvironmentBean journal = BeanPopulator.getDefaultInstance(HornetqJournalEnvironmentBean.class);
        journal.setStoreDir(Path.of(dir, "journal").toString());
        boolean isAsync = store.equals("journal-aio");
        // The store would fall back to another way without a word that anybody hears.
        if (isAsync && !AIOSequentialFileFactory.isSupported()) {
            throw new IllegalStateException("no asynchronous I/O here: Debian's package libaio1 is missing");
        }
        journal.setAsyncIO(isAsync);
        if (options.text("tuned").equals("true")) {
            journal.setSyncDeletes(false);
            journal.setMaxIO(500);
            journal.setBufferFlushesPerSecond(options.number("threads") == 1 ? Integer.MAX_VALUE : 5_000);
        }
    }

    /** Commits, and tells what came of it. */
    private static String run(Options options) throws Exception {
        Committer[] threads = new Committer[(int) options.number("threads")];
        for (int index = 0; index < threads.length; index++) {
            threads[index] = new Committer();
            threads[index].start();
        }
        Thread.sleep(options.number("warm-up-ms"));
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = system.getProcessCpuTime();
        long started = System.nanoTime();
        measures = true;
        Thread.sleep(options.number("duration-ms"));
        ends = true;
        long took = System.nanoTime() - started;
        cpu = system.getProcessCpuTime() - cpu;
        Histogram all = new Histogram(LATENCY_NS_MAX, DIGITS);
        long errors = 0;
        String failure = null;
        for (Committer thread : threads) {
            thread.join();
            all.add(thread.histogram);
            errors += thread.failure == null ? 0 : 1;
            failure = failure == null ? thread.failure : failure;
        }
        return json(all, took, cpu, errors, failure);
    }

    private static String json(Histogram all, long took, long cpu, long errors, String failure) {
        StringJoiner latencies = new StringJoiner(",", "[", "]");
        for (HistogramIterationValue at : all.recordedValues()) {
            latencies.add("[" + at.getValueIteratedTo() + "," + at.getCountAtValueIteratedTo() + "]");
        }
        String quoted = failure == null ? "null" : "\"" + failure.replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"";
        double seconds = took / 1e9;
        return String.format(
                Locale.ROOT,
                "{\"rate\":%.1f,\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"transactions\":%d,\"took_us\":%d,\"cpu_us\":%d,"
                        + "\"errors\":%d,\"failure\":%s,\"latencies_ns\":%s}",
                all.getTotalCount() / seconds,
                all.getValueAtPercentile(50) / 1e3,
                all.getValueAtPercentile(99) / 1e3,
                all.getValueAtPercentile(99.9) / 1e3,
                all.getTotalCount(),
                took / 1_000,
                cpu / 1_000,
                errors,
                quoted,
                latencies);
    }

    /** A thread in a closed loop. */
    private static final class Committer extends Thread {
        final Histogram histogram = new Histogram(LATENCY_NS_MAX, DIGITS);
        String failure;

        @Override
        public void run() {
            var manager = TransactionManager.transactionManager();
            XAResource one = new Dummy();
            XAResource two = new Dummy();
            try {
                while (!ends) {
                    manager.begin();
                    var transaction = manager.getTransaction();
                    transaction.enlistResource(one);
                    transaction.enlistResource(two);
                    long started = System.nanoTime();
                    manager.commit();
                    long took = System.nanoTime() - started;
                    // What ends later than the measured part does not count.
                    if (measures && !ends) {
                        histogram.recordValue(Math.min(took, LATENCY_NS_MAX));
                    }
                }
            } catch (Throwable error) {
                failure = error.toString();
            }
        }
    }

    /** A resource that answers at once. */
    private static final class Dummy implements XAResource {
        @Override
        public int prepare(Xid xid) {
            return XA_OK;
        }

        @Override
        public void commit(Xid xid, boolean onePhase) {}

        @Override
        public void rollback(Xid xid) {}

        @Override
        public void start(Xid xid, int flags) {}

        @Override
        public void end(Xid xid, int flags) {}

        @Override
        public void forget(Xid xid) {}

        @Override
        public Xid[] recover(int flag) {
            return new Xid[0];
        }

        @Override
        public boolean isSameRM(XAResource other) {
            return this == other;
        }

        @Override
        public int getTransactionTimeout() {
            return 0;
        }

        @Override
        public boolean setTransactionTimeout(int seconds) {
            return false;
        }
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
            for (String word : words) {
                String[] parts = word.split("=", 2);
                if (!parts[0].startsWith("--") || parts.length < 2) {
                    throw new IllegalArgumentException("want --name=value, not " + word);
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
    }
}
